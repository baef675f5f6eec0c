"""The log of the program that uses us, loaded when there is something to say: most never need it."""

from __future__ import annotations


def tell_log(words: str, *values: object, error: bool = False, debug: bool = False) -> None:
    """A warning, or for those who look closely; with ``error`` the exception that is being handled, and where
    it came from.
    """
    import logging

    # A signal handler that came in the middle of this very import finds half of the module.
    logger_of = getattr(logging, "getLogger", None)
    if logger_of is not None:
        level = logging.ERROR if error else logging.DEBUG if debug else logging.WARNING
        logger_of("flyball").log(level, words, *values, exc_info=error)
