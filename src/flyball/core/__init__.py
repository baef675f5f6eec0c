"""Decisions, and nothing else: values in, values out.

Start with ``pool/plan`` (slow: what are the limits?) and ``pool/admission`` (fast: does this ask fit them?).
No I/O, clock, randomness, threads or logging in this room; time and chance are arguments.
"""
