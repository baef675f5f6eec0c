"""How far a reader has to follow an uncontended ``with flyball.slot("p"):`` and ``flyball exec`` on SQLite,
and a call at a limiter.

Counted are functions of flyball and the files they stand in, each once. It is a figure of the code's
structure, which is the same on every machine; what it costs in time is for ``python -m bench``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import flyball

ROOM = str(Path(flyball.__file__).parent)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def repository(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a git checkout, in which every default has to be found."""
    (tmp_path / "blog" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "blog")
    monkeypatch.delenv("FLYBALL_URL", raising=False)
    for _ in range(3):
        # Whatever is imported, opened or planned with a first use is done by now.
        with flyball.slot("p"):
            pass
    return tmp_path


def entered(call: Callable[[], object]) -> dict[str, list[str]]:
    """The functions of flyball that a call enters, by file, in order."""
    found: dict[str, list[str]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOM):
            functions = found.setdefault(code.co_filename.removeprefix(ROOM), [])
            if code.co_qualname not in functions:
                functions.append(code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def functions(way: dict[str, list[str]]) -> list[str]:
    return [f"{file} {name}" for file, names in way.items() for name in names]


@pytest.mark.parametrize(
    ("options", "files", "calls"),
    [({}, 12, 30), ({"priority": 1, "slots": 2}, 12, 30), ({"cost": {"tokens": 10}}, 13, 32)],
)
def test_an_uncontended_slot_is_taken_and_given_back_in_few_steps(
    options: flyball.AskOptions, files: int, calls: int
) -> None:
    slots: list[flyball.Slot] = []

    def enter() -> None:
        slots.append(flyball.slot("p", **options))
        slots[0].__enter__()

    taking = entered(enter)
    giving = entered(lambda: slots[0].__exit__(None, None, None))
    assert len(taking) <= files, sorted(taking)
    assert len(functions(taking)) <= calls, functions(taking)
    assert len(giving) <= 8, sorted(giving)
    assert len(functions(giving)) <= 17, functions(giving)


@pytest.mark.parametrize("options", [{}, {"cost": {"tokens": 10}}, {"priority": 1, "slots": 2}])
def test_it_never_becomes_a_flow_or_a_step_of_the_store(options: flyball.AskOptions) -> None:
    def use() -> None:
        with flyball.slot("p", **options):
            pass

    names = {name.rpartition(".")[2] for name in functions(entered(use))}
    assert not names & {"run_sync", "settle", "begin", "_admit_in_step"}


def test_a_slot_that_an_ask_waits_for_goes_the_whole_way() -> None:
    """What the short way leaves out is not lost: an ask that is refused is still answered by the rule."""
    flyball.Governor().set_pool("p", cap=1, adaptive=False)
    with flyball.slot("p"):

        def ask() -> None:
            with pytest.raises(flyball.AtCapacityError):
                flyball.Governor().acquire_nowait("p")

        assert "_admit_in_step" in {name.rpartition(".")[2] for name in functions(entered(ask))}


def test_a_call_that_fills_an_adaptive_limiter_enters_few_functions() -> None:
    """The controller is shown each of them, so none takes a ready pass."""
    limiter = flyball.Limiter(cap=1, cap_ceiling=1)

    async def count_calls() -> int:
        async def call() -> None:
            async with limiter.slot():
                pass

        for _ in range(50):
            await call()
        return functions_entered(call())

    assert asyncio.run(count_calls()) <= 33


def functions_entered(call: Coroutine[Any, Any, None]) -> int:
    """How often a function of flyball is entered by a coroutine that never waits."""
    entries = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal entries
        entries += event == "call" and frame.f_code.co_filename.startswith(ROOM)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with pytest.raises(StopIteration):
            call.send(None)
    finally:
        sys.setprofile(before)
    return entries


def test_exec_of_a_command_goes_through_few_files(capfd: pytest.CaptureFixture[str]) -> None:
    run = "from flyball.cli.main import main\ndef call(): assert main(['exec', '--', 'true']) == 0"
    code = f"from tests.governor.test_short_way import entered\n{run}\ncall()\nprint(*entered(call))"
    subprocess.run(
        [sys.executable, "-P", "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
    )
    files = capfd.readouterr().out.split()
    assert "/cli/commands/agents/exec_.py" in files
    assert len(files) <= 40, sorted(files)
