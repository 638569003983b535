"""Notebooks into runs: the only place where reach, recover, judge and record meet."""
