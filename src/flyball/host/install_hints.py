"""How flyball is installed into the environment that runs it: the commands that messages tell people to type.

The distribution is ``flyball-governor``; the package index has another project's under the name ``flyball``.
An installed distribution knows its own extras, so ``flyball-governor[serve]`` adds what is missing whether it
was installed from a clone or from an index. An upgrade is made from a clone.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "flyball-governor"


def extra_command(extra: str) -> str:
    """The command that adds an extra of flyball to this environment."""
    return _install(f"'{DISTRIBUTION}[{extra}]'")


def upgrade_command() -> str:
    """The command that puts another version into this environment, from a clone of flyball."""
    return f"git pull && {_install('.')}"


def _install(what: str) -> str:
    """A bare ``pip`` may belong to another environment, and one made by uv or pipx may have none."""
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx inject --force {prefix.name} {what}"
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(str(prefix))} {what}"
    return f"{shlex.quote(sys.executable)} -m pip install {what}"
