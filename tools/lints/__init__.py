"""House rules that a program can check.

Each rule is a function that takes a text (a Markdown cell or page, a code cell, a module) or a
notebook and returns complaints, one clear sentence each, none if all is well.
"""
