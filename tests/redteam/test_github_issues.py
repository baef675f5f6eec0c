"""The author of an issue may edit its text at any time, and in a public repository any user is one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.factory.kit import Project

STAND_IN = Path(__file__).parent.parent / "factory" / "tasks" / "stand_in_gh.py"


@pytest.fixture
def issues(project: Project) -> Any:
    """Give the project issues, each as its number, its text and its labels; ``gh`` is a stand-in."""
    state, folder = project.folder / "github.json", project.place / "bin"
    folder.mkdir()
    (folder / "gh").write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} {state} "$@"\n')
    (folder / "gh").chmod(0o755)
    project.env["PATH"] = f"{folder}:{project.env['PATH']}"
    project.configure(tasks={"source": "github"})
    project.commit("issues")

    def make(*given: tuple[int, str, list[str]]) -> None:
        made = [
            {
                "number": number,
                "title": f"Issue {number}",
                "body": text,
                "state": "OPEN",
                "labels": labels,
                "createdAt": "2026-01-01T00:00:00Z",
                "url": f"https://github.com/ada/blog/issues/{number}",
            }
            for number, text, labels in given
        ]
        names = {name for _, _, labels in given for name in labels}
        state.write_text(json.dumps({"labels": sorted(names | {"flyball"}), "issues": made}))

    return make


@pytest.mark.parametrize("line", ["Need\u017f: #12", "Parent: #" + "9" * 5000, "Needs: gh-" + "9" * 5000])
def test_a_letter_in_one_issue_stops_no_other(project: Project, issues: Any, line: str) -> None:
    issues((1, line, ["flyball"]), (2, "Honest.", ["flyball"]))
    ran = project.run("--json")
    assert "Traceback" not in ran.err, ran.said
    assert "gh-2" in ran.json.get("merged", []), ran.said


@pytest.mark.parametrize(("policy", "label", "merged"), [("manual", "auto", []), ("auto", "manual", [])])
def test_a_parent_that_an_issue_names_itself_makes_landing_stricter_and_never_laxer(
    project: Project, issues: Any, policy: str, label: str, merged: list[str]
) -> None:
    project.configure(merge={"policy": policy})
    project.commit("policy")
    issues((1, "Parent: #7", ["flyball"]), (7, "", [f"merge:{label}"]))
    ran = project.run("--json")
    assert ran.json["merged"] == merged, ran.said
    assert list(ran.json["waiting_for_you"]) == ["gh-1"], ran.said
