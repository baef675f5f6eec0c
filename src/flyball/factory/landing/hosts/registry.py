"""Which host a project's pull requests are at."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

from flyball.factory.git.git import Git
from flyball.factory.landing.hosts import github, gitlab
from flyball.factory.landing.hosts.port import PullError, PullHost


class NoOriginError(PullError):
    """The project has no remote to push to."""


def find_host(root: Path, wish: str = "auto") -> PullHost:
    """The host of a project's origin; PullError where there is none that could be asked."""
    address = Git(root).run("remote", "get-url", "origin")
    if not address.ok:
        words = "the project has no remote called origin to push to"
        raise NoOriginError(f"{words}; git remote add origin ADDRESS")
    name = _host_name(address.text) if wish == "auto" else wish
    if name is None:
        words = f"cannot tell from {address.text} which host this is"
        raise PullError(f'{words}; set merge.host = "github" or "gitlab" in flyball.toml')
    program, install = (
        (github.PROGRAM, github.INSTALL) if name == "github" else (gitlab.PROGRAM, gitlab.INSTALL)
    )
    if shutil.which(program) is None:
        raise PullError(f"{program} was not found; {install}")
    return github.GithubPulls(root) if name == "github" else gitlab.GitlabPulls(root)


def _host_name(address: str) -> str | None:
    """
    >>> [_host_name(a) for a in ("git@github.com:me/x.git", "https://gitlab.example.org/x", "/srv/x.git")]
    ['github', 'gitlab', None]
    """
    url = urlsplit(address)
    host = url.hostname or (address.partition(":")[0].rpartition("@")[2] if ":" in address else "")
    return next((name for name in ("github", "gitlab") if name in host.lower()), None)
