"""Tests of the package, the pages and the built book."""
