"""Figures of the book.

Each function takes a matplotlib ``Figure`` and plain parameters, draws, and returns the
plotted data, so that a test can check what a reader sees.
"""
