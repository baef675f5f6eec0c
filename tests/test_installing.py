"""What is built and installed: its name, its command, and the install commands in its messages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[1]
NAME = "flyball-governor"


def _site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _needed_by(required: Distribution) -> set[str]:
    """The names of what a distribution needs here, without its extras."""
    needed = [Requirement(line) for line in required.requires or ()]
    names = {one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})}
    return names.union(*(_needed_by(distribution(name)) for name in names))


def _link(name: str, site_packages: Path) -> None:
    """Makes a distribution of this environment one of another too, without a download."""
    files = distribution(name).files or []
    for top in {file.parts[0] for file in files if file.parts[0] != ".."}:
        if not (site_packages / top).exists():
            (site_packages / top).symlink_to(Path(str(distribution(name).locate_file(top))))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the built wheel and what it needs without any extra."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(place)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (wheel,) = place.glob("*.whl")
    environment = place / "environment"
    venv.create(environment, with_pip=True, symlinks=True)
    for name in _needed_by(distribution(NAME)):
        _link(name, _site_packages(environment))
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", wheel], check=True)
    return environment


def _flyball(
    environment: Path, home: Path, *words: str, folder: Path | None = None, url: str = ""
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLYBALL_", "OTEL_"))}
    return subprocess.run(
        [environment / "bin" / "flyball", *words],
        env={**kept, "FLYBALL_HOME": str(home), "FLYBALL_URL": url},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_wheel_brings_the_command(bare: Path, tmp_path: Path) -> None:
    assert _flyball(bare, tmp_path, "--version").stdout.startswith("flyball ")


@pytest.mark.parametrize(
    ("extra", "words", "url"),
    [
        ("serve", ["serve", "--port", "0"], ""),
        ("redis", ["status"], "redis://127.0.0.1:1"),
        ("postgres", ["status"], "postgresql://127.0.0.1:1/db"),
    ],
)
def test_what_needs_an_extra_names_the_command_that_installs_it_here(
    bare: Path, tmp_path: Path, extra: str, words: list[str], url: str
) -> None:
    answer = _flyball(bare, tmp_path, *words, url=url)
    assert answer.returncode == 2
    assert f"{bare}/bin/python -m pip install '{NAME}[{extra}]'" in answer.stderr


def test_the_extra_of_an_installed_flyball_is_found_without_an_index(bare: Path) -> None:
    """So the hint is right for an install from a clone, before and after a release."""
    answer = subprocess.run(
        [bare / "bin" / "python", "-m", "pip", "install", "--dry-run", "--no-index", f"{NAME}[serve]"],
        env={name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
        capture_output=True,
        text=True,
    )
    assert f"(from {NAME}[serve])" in answer.stderr  # what is missing is something that the extra needs


def test_a_client_of_the_service_without_its_library_says_how_to_install_it(bare: Path) -> None:
    answer = subprocess.run(
        [bare / "bin" / "python", "-c", "from flyball.client import Client"], capture_output=True, text=True
    )
    assert f"pip install '{NAME}[http]'" in answer.stderr.splitlines()[-1]


def test_a_project_for_a_newer_flyball_is_told_how_to_upgrade_this_one(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text('[project]\nid = "blog"\nengine = "99+"\n')
    answer = _flyball(bare, tmp_path / "home", "validate", folder=tmp_path)
    assert f"{bare}/bin/python -m pip install ." in answer.stdout + answer.stderr


PLACES = ("*.md", "docs/**/*.md", "src/**/*", "pyproject.toml", "Makefile", "requirements/*.in")
ANOTHER_PROJECTS_NAME = re.compile(r"(pip|pipx|tool|uv) (install|inject|add)( -\S+)* ['\"]?flyball(?![-\w])")


@pytest.mark.parametrize("line", ["pip install flyball", "pip install 'flyball[serve]'", "uv add flyball>=1"])
def test_the_search_for_the_other_name_finds_it(line: str) -> None:
    assert ANOTHER_PROJECTS_NAME.search(line)


def test_no_text_installs_the_project_that_is_called_flyball_on_the_index() -> None:
    pages = {page for pattern in PLACES for page in REPOSITORY.glob(pattern) if page.is_file()}
    wrong = [
        f"{page.relative_to(REPOSITORY)}: {line.strip()}"
        for page in sorted(pages)
        if page.suffix in (".md", ".py", ".toml", ".in", "")
        for line in page.read_text(encoding="utf-8").splitlines()
        if ANOTHER_PROJECTS_NAME.search(line)
    ]
    assert wrong == []


def _requirements(pins: Path) -> list[str]:
    """Each with its options, on one line."""
    lines = (line for line in pins.read_text().splitlines() if not line.lstrip().startswith("#"))
    return [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.parametrize(
    "pins", sorted((REPOSITORY / "requirements").glob("*.txt")), ids=lambda pins: pins.name
)
def test_what_is_installed_is_pinned_with_hashes_and_comes_from_no_named_index(pins: Path) -> None:
    found = _requirements(pins)
    assert found
    assert [line for line in found if "==" not in line or "--hash=sha256:" not in line] == []
    assert "://" not in pins.read_text()


def test_a_package_of_other_content_is_refused(tmp_path: Path, bare: Path) -> None:
    """The way in which the Makefile installs what was pinned."""
    wheel = next(bare.parent.glob("*.whl"))
    pins = tmp_path / "pins.txt"
    pins.write_text(f"{NAME}=={wheel.name.split('-')[1]} --hash=sha256:{'0' * 64}\n")
    install = ["install", "--require-hashes", "--no-index", "--no-deps", "--find-links", str(wheel.parent)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *install, "--target", str(tmp_path / "into"), "-r", str(pins)],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stdout + done.stderr


def test_the_real_agents_are_locked_with_hashes_and_no_registry() -> None:
    lock = (REPOSITORY / "tests/agents/package-lock.json").read_text()
    packages = json.loads(lock)["packages"]
    wanted = json.loads((REPOSITORY / "tests/agents/package.json").read_text())["dependencies"]
    assert packages[""]["dependencies"] == wanted
    assert [name for name, found in packages.items() if name and "integrity" not in found] == []
    assert '"resolved"' not in lock
