"""What the standard library imports and rarely uses is loaded when something of it is used."""

from __future__ import annotations

import subprocess
import sys

_BEGIN = "import sys; from flyball.host.delayed_module import delay_rarely_used; delay_rarely_used()\n"


def printed(program: str) -> str:
    words = [sys.executable, "-c", _BEGIN + program]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_dataclasses_with_docstrings_do_not_load_inspect() -> None:
    program = """
import dataclasses
@dataclasses.dataclass(frozen=True, slots=True)
class One:
    "One."
    a: int
print(One(1), "ast" in sys.modules)
"""
    assert printed(program) == "One(a=1) False"


def test_a_module_that_is_used_is_the_real_one() -> None:
    program = """
import inspect
early = inspect
def act(a, *, b): ...
print(early.signature(act))
from inspect import signature
print(signature is early.signature, sys.modules["inspect"].__file__ == early.__file__)
import ipaddress
print(ipaddress.ip_address("::1").is_loopback)
"""
    assert printed(program).splitlines() == ["(a, *, b)", "True True", "True"]


def test_the_command_line_and_the_hooks_start_without_inspect() -> None:
    for first in ("flyball.cli.commands.agents.exec_", "flyball.cli.main"):
        program = f"import flyball.cli, {first}\nprint('ast' in sys.modules)"
        assert printed(program) == "False", first
