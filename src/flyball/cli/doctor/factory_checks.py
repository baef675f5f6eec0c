"""What the doctor can find about the factory: accounts, guards, the sandbox that a project asks for.

What belongs to the machine is looked at from anywhere; what belongs to a project, from a folder of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from flyball.cli.doctor.pool_checks import FIX, DoctorFinding
from flyball.cli.ui.units import command
from flyball.errors import AccountError, FlyballError, StoreError, UsageError
from flyball.factory.accounts.account import open_account
from flyball.factory.accounts.profile import Profiles
from flyball.factory.guards.install import Guards
from flyball.factory.guards.sandbox import sandbox_problem
from flyball.factory.project.config import ProjectConfig
from flyball.factory.project.config_reader import load_config
from flyball.factory.project.paths import find_root


def check_factory(home: Path, here: Path, *, fix: bool) -> Iterator[DoctorFinding]:
    """Everything that is wrong, mended where ``fix`` says so and it can be."""
    yield from check_profiles(Profiles(home))
    yield from check_guards(Guards(home), fix=fix)
    try:
        config = load_config(find_root(here))
    except UsageError:
        return  # no project here, or a file that ``flyball validate`` finds wrong
    yield from check_account(config, home)
    yield from check_sandbox(config)


def check_profiles(profiles: Profiles) -> Iterator[DoctorFinding]:
    try:
        _, found = profiles.list()
    except StoreError:
        # The home itself cannot be read, which has a finding of its own.
        return
    for broken in found:
        yield DoctorFinding(
            kind=f"profile {broken.name}",
            words=broken.words,
            meaning="no run starts under this profile",
            remedy=f"mend the file, or {command('account', 'remove', broken.name)}",
        )


def check_guards(guards: Guards, *, fix: bool) -> Iterator[DoctorFinding]:
    changed, fixed = guards.changed_files(), False
    if changed and fix:
        with suppress(StoreError):
            guards.install()
            fixed = True
    if changed:
        yield DoctorFinding(
            kind="guards",
            words=f"guards were changed: {', '.join(changed)} in {guards.folder}",
            meaning="changed guards may let agents push, merge or write where they must not",
            remedy=f"put right before the next agent starts; {FIX} does it now",
            fixable=True,
            fixed=fixed,
        )


def check_account(config: ProjectConfig, home: Path) -> Iterator[DoctorFinding]:
    try:
        open_account(config, home).verify()
    except (AccountError, UsageError) as error:
        yield DoctorFinding(
            kind="account",
            words=str(error),
            meaning=f"flyball run starts nothing in {config.project.id}",
            remedy=command("account", "verify", config.account.profile),
        )
    except FlyballError:
        # The profile's file, which has a finding of its own.
        return


def check_sandbox(config: ProjectConfig) -> Iterator[DoctorFinding]:
    if config.guard.sandbox == "bwrap" and (problem := sandbox_problem()):
        yield DoctorFinding(
            kind="sandbox",
            words=f'{config.project.id} asks for guard.sandbox = "bwrap", and {problem}',
            meaning="flyball run starts nothing there",
            remedy='install bubblewrap (apt install bubblewrap), or set guard.sandbox = "none"',
        )
