"""Judges: evidence and target in, verdict out.

No I/O, no clock, no torch: a verdict can be recomputed from an evidence file and a target alone, at
any time later.
"""
