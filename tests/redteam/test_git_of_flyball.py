"""What an agent leaves in git's folder of its worktree, or in the worktree, runs nothing outside."""

from __future__ import annotations

import pytest

from tests.factory.kit import Project

PAYLOAD = """
import contextlib, shutil
own = Path('.git')
payload = folder / 'payload.sh'
payload.write_text(f'#!/bin/sh\\necho $$ > {folder}/ran\\ncat\\n')
payload.chmod(0o755)
def settings(filter_in):
    named = f'[filter "x"]\\nclean = {payload}\\nsmudge = {payload}\\n[core]\\nfsmonitor = {payload}\\n'
    with open(filter_in / 'config', 'a') as config:
        config.write(named)
    (filter_in / 'info').mkdir(exist_ok=True)
    (filter_in / 'info' / 'attributes').write_text('* filter=x\\n')
write('pages/t-1.txt', 'fine\\n')
"""
"""A program that leaves a mark when anything runs it, and git settings that name it."""

ANOTHER_COMMON = f"""{PAYLOAD}
fake = folder / 'fake.git'
shutil.copytree(own, fake)
settings(fake)
with contextlib.suppress(OSError):
    (own / 'commondir').write_text(str(fake))
"""
"""Its git folder says that the repository is somewhere else."""

OWN_SETTINGS = f"""{PAYLOAD}
settings(folder)
with contextlib.suppress(OSError):
    (own / 'config.worktree').write_text((folder / 'config').read_text())
with contextlib.suppress(OSError):
    settings(own)
write('.gitattributes', '* filter=x\\n')
"""
"""Settings of its own repository."""

ANOTHER_GIT = f"""{PAYLOAD}
fake = folder / 'fake.git'
shutil.copytree(own, fake)
settings(fake)
with contextlib.suppress(OSError):
    Path('.git').rename('aside')
    Path('.git').write_text(f'gitdir: {{fake}}')
"""
"""Its ``.git`` names another repository."""

A_REPOSITORY_INSIDE = f"""{PAYLOAD}
os.mkdir('inside')
run = lambda *words: subprocess.run(words, cwd='inside', check=True, capture_output=True)
run('/usr/bin/git', 'init', '-q')
write('inside/x', 'one')
run('/usr/bin/git', 'add', 'x')
run('/usr/bin/git', '-c', 'user.name=x', '-c', 'user.email=x', 'commit', '-qm', 'x')
git('add', '--all')
settings(Path('inside/.git'))
write('inside/x', 'two')
"""
"""A repository in the worktree, whose own settings git reads where it looks whether that has changed."""


@pytest.mark.parametrize(
    "act",
    [ANOTHER_COMMON, ANOTHER_GIT, A_REPOSITORY_INSIDE],
    ids=["commondir", ".git", "a repository inside"],
)
def test_settings_that_an_agent_wrote_run_nothing_outside(hostile: Project, act: str) -> None:
    hostile.task("t-1", act=act)
    ran = hostile.run("--json")
    assert (hostile.folder / "payload.sh").exists(), ran.said
    assert not (hostile.folder / "ran").exists(), ran.said


def test_settings_of_its_repository_are_not_an_agent_s_to_write(walled: Project) -> None:
    walled.git("config", "extensions.worktreeConfig", "true")
    walled.task("t-1", act=OWN_SETTINGS)
    ran = walled.run("--json")
    assert (walled.folder / "payload.sh").exists(), ran.said
    assert not (walled.folder / "ran").exists(), ran.said


@pytest.mark.parametrize(
    ("name", "text"),
    [("logs/HEAD", b"mine\n"), ("index", None), ("COMMIT_EDITMSG", b"mine\n"), ("ORIG_HEAD", b"mine\n")],
)
def test_a_link_in_git_s_folder_of_a_worktree_is_not_written_through(
    hostile: Project, name: str, text: bytes | None
) -> None:
    """To a file of the user's, or to one that is not there yet: git takes no text for an index."""
    victim = hostile.place / "user" / ".profile"
    if text is not None:
        victim.write_bytes(text)
    hostile.task(
        "t-1",
        act="own = Path('.git')\n"
        f"(own / {name!r}).unlink(missing_ok=True)\n"
        f"(own / {name!r}).symlink_to({str(victim)!r})\n"
        "write('pages/t-1.txt', 'fine\\n')",
    )
    ran = hostile.run("--json")
    assert (victim.read_bytes() if victim.exists() else None) == text
    assert list(ran.json["blocked"]) == ["t-1"], ran.said
