"""The log of the program that uses us, loaded when there is something to say: most never need it."""

from __future__ import annotations


def tell_log(words: str, *values: object, error: bool = False) -> None:
    """A warning; with ``error`` the exception that is being handled, and where it came from."""
    import logging

    # A signal handler that came in the middle of this very import finds half of the module.
    logger_of = getattr(logging, "getLogger", None)
    if logger_of is not None:
        logger_of("flyball").log(logging.ERROR if error else logging.WARNING, words, *values, exc_info=error)
