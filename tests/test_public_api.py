"""The public door: small, lazy, typed."""

from __future__ import annotations

import subprocess
import sys

import flyball


def test_every_public_name_can_be_imported() -> None:
    for name in flyball.__all__:
        assert getattr(flyball, name) is not None


def test_importing_flyball_imports_nothing_else_of_it() -> None:
    code = "import sys, flyball; print([m for m in sys.modules if m.startswith('flyball.')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
