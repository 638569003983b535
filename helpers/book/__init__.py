"""Notebooks into runs: the only place where reach, recover, judge and record meet."""

from helpers.book import fast_import as fast_import  # before anything here imports nbformat
