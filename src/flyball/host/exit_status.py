"""The exit statuses that flyball ends with and understands, after sysexits.h and the shell."""

from __future__ import annotations

USAGE = 2
BUG = 70
"""EX_SOFTWARE."""
STORE = 74
"""EX_IOERR."""
LIMITED = 75
"""EX_TEMPFAIL: try later. A command that ends with it says that it was limited."""
