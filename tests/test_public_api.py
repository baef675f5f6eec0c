"""The public door: small, lazy, typed."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import flyball
from tests.public_signatures import signatures, types_in
from tests.python_reference import PAGE, reference_page

FROM_ELSEWHERE = {
    "Any",
    "Awaitable",
    "BaseException",
    "Callable",
    "Coroutine",
    "Mapping",
    "None",
    "Sequence",
    "Unpack",
}


def test_every_public_name_can_be_imported() -> None:
    for name in flyball.__all__:
        assert getattr(flyball, name) is not None


def test_importing_flyball_imports_nothing_else_of_it() -> None:
    code = "import sys, flyball; print([m for m in sys.modules if m.startswith('flyball.')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


def test_a_first_slot_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    code = (
        "import sys, flyball\n"
        "with flyball.slot(): print([m for m in ('subprocess', 'locale', 'asyncio') if m in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FLYBALL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == "[]"


def test_every_type_in_a_public_signature_can_be_imported_from_flyball() -> None:
    missing = {
        f"{name}: {each}"
        for name, function in signatures()
        for each in types_in(function) - set(flyball.__all__) - FROM_ELSEWHERE
    }
    assert missing == set()


def test_the_reference_page_says_what_the_code_says() -> None:
    assert PAGE.read_text() == reference_page(), "stale; run: python -m tests.python_reference"


def test_every_public_name_is_on_the_reference_page() -> None:
    page = reference_page()
    assert [name for name in flyball.__all__ if f"`{name}" not in page] == []


def test_every_public_name_has_a_docstring() -> None:
    named = (getattr(flyball, name) for name in flyball.__all__)
    classes = [each for each in named if inspect.isclass(each) or inspect.isfunction(each)]
    assert [each.__name__ for each in classes if not each.__doc__] == []
    assert [name for name, function in signatures() if "." in name and not function.__doc__] == []
