"""Looking into a registry from outside."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from flyball.factory.project.registry import ProjectRegistry


def git(registry: ProjectRegistry, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=registry.folder, check=True, capture_output=True, text=True)
    return done.stdout


def commits(registry: ProjectRegistry) -> list[str]:
    """What the history says, newest first."""
    return git(registry, "log", "--format=%s").splitlines()


def is_clean(registry: ProjectRegistry) -> bool:
    return git(registry, "status", "--porcelain") == ""


def audit(registry: ProjectRegistry) -> list[dict[str, object]]:
    return [json.loads(line) for line in (registry.folder / "audit.jsonl").read_text("utf-8").splitlines()]


def ids(registry: ProjectRegistry) -> list[str]:
    return [entry.id for entry in registry.list().entries]


def file_of(registry: ProjectRegistry, project: str) -> Path:
    return registry.folder / "projects" / f"{project}.json"
