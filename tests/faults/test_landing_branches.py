"""Odd branches and odd gates: empty, merged, unsigned, with submodules; a gate that prints without end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from flyball.factory.landing.gate import LIMIT_BYTES
from tests.factory.kit import GREEN, Project
from tests.waiting import until

pytestmark = pytest.mark.faults


# -- gates ------------------------------------------------------------------------------------------------


def test_of_a_gate_that_prints_100_mb_the_beginning_and_the_end_are_kept(project: Project) -> None:
    noise = "echo the beginning; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo the end"
    project.configure(gate={"commands": [noise, GREEN]})
    project.commit("noise")
    project.task("t-1")
    ran = project.run()
    assert ran.code == 0, ran.said
    log = project.folders("t-1")[0] / "gate-1" / "gate.log"
    text = log.read_bytes()
    assert len(text) <= LIMIT_BYTES
    assert text.startswith(b"the beginning\n")
    assert text.endswith(b"the end\n")
    assert b"MB left out here" in text


def test_stopping_during_the_gate_of_a_batch_ends_it_and_leaves_all_of_them_to_go_on_with(
    project: Project,
) -> None:
    once = project.place / "once"
    project.configure(gate={"commands": [f"test -e {once} || {{ trap '' TERM; touch {once}; sleep 600; }}"]})
    project.commit("hangs once, and does not listen")
    names = project.tasks(3)
    with project.landings_held(3):
        process = project.start("run")
    until(once.exists, "the gate to begin")
    os.kill(process.pid, signal.SIGTERM)
    project.read_until(process, "again to stop it")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert project.processes() == []
    assert project.landed() == []
    assert project.run().code == 0
    assert project.wrongs(names) == []


# -- branches ---------------------------------------------------------------------------------------------


def test_empty_merged_and_plain_branches_land_together_each_as_it_should(project: Project) -> None:
    # Its guard would keep an agent from merging; a person may have done it.
    project.configure(guard={"hooks": False})
    project.tasks(3)
    side = "git('checkout', '-qb', 'side')\ncommit('pages/t-1.a', 'a')\ngit('checkout', '-q', 'agent/t-1')\n"
    project.act("t-1", f"{side}commit('pages/t-1.b', 'b')\ngit('merge', '-q', '--no-edit', 'side')")
    project.act("t-2", "git('commit', '-q', '--allow-empty', '-m', 'nothing')")
    with project.landings_held(2):
        process = project.start("run")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert "t-2  no-changes" in out
    assert project.wrongs(["t-1", "t-3"]) == []
    assert {"pages/t-1.a", "pages/t-1.b"} <= set(project.files())


SUBMODULES = {
    "new": "sub('pages/sub')",
    "moved": "sub('lib/sub')",
    "removed": "git('rm', '-q', '--cached', 'lib/sub')\nos.rmdir('lib/sub')",
    "above a protected path": "sub('deep')",
}
ACT = """
def sub(path):
    os.makedirs(path, exist_ok=True)
    git('update-index', '--add', '--cacheinfo', f"160000,{git('rev-parse', 'HEAD')},{path}")
write(f'pages/{task}', 'x')
"""


def test_a_submodule_is_refused_unless_allowed_and_never_above_a_protected_path(project: Project) -> None:
    head = project.git("rev-parse", "HEAD")
    project.configure(merge={"protected": ["deep/secrets/"]}, run={"width": 4})
    (project.root / "lib" / "sub").mkdir(parents=True)
    project.git("update-index", "--add", "--cacheinfo", f"160000,{head},lib/sub")
    project.git("commit", "-qam", "a submodule")
    for number, script in enumerate(SUBMODULES.values()):
        project.task(f"t-{number}", act=ACT + script, commit=False)
    project.git("add", "tasks")
    project.git("commit", "-qm", "tasks")
    blocked = project.run("--json").json["blocked"]
    assert set(blocked) == {f"t-{number}" for number in range(len(SUBMODULES))}
    assert all("(protected: a submodule)" in blocked[f"t-{number}"] for number in range(3)), blocked
    assert "merge.submodules" in blocked["t-0"]
    assert "(protected: deep/secrets/)" in blocked["t-3"]
    assert project.landed() == []

    project.configure(merge={"submodules": True})
    project.git("commit", "-qam", "submodules are fine")
    ran = project.flyball("merge", "t-0")
    assert ran.code == 0, ran.said
    assert "protected: deep/secrets/" in project.flyball("merge", "t-3").out


# -- signatures -------------------------------------------------------------------------------------------


def test_only_signed_branches_land_where_that_is_asked(project: Project) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed: signatures were not tried")
    key = project.place / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    allowed = project.place / "allowed"
    allowed.write_text(f"someone@example.org {key.with_suffix('.pub').read_text()}")
    project.git("config", "gpg.format", "ssh")
    project.git("config", "gpg.ssh.allowedSignersFile", str(allowed))
    project.git("config", "user.signingKey", str(key))
    project.configure(merge={"signed": True})
    project.commit("signed only")
    sign = "git('commit', '-q', '--amend', '--no-edit', '-S')"
    project.task("t-1", act=f"commit('pages/t-1.txt', 'x')\n{sign}")
    project.task("t-2", act="commit('pages/t-2.txt', 'x')")
    project.task("t-3", act=f"commit('pages/t-3.a', 'x')\ncommit('pages/t-3.b', 'x')\n{sign}")
    ran = project.run("--json")
    assert ran.code == 1, ran.said
    blocked = ran.json["blocked"]
    assert project.landed() == ["t-1"], blocked
    assert blocked["t-2"].startswith("unsigned: its commit")
    assert "1 of its 2 commits" in blocked["t-3"]
    assert "merge.signed" in blocked["t-2"]
    tree = project.workspace("t-2")
    way_out = ["git", "rebase", "-q", "--exec", "git commit --amend --no-edit -S", "main"]
    subprocess.run(way_out, cwd=tree, env={**os.environ, **project.env}, check=True, capture_output=True)
    ran = project.flyball("merge", "t-2")
    assert ran.code == 0, ran.said
