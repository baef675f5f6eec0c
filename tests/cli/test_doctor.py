"""``flyball doctor``: finds what is wrong, says what it means, mends what is safe."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.core.pool.breaker import BreakerState
from flyball.core.pool.learned import CapState
from flyball.core.pool.model import Phase
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.settings import MachineSettings
from flyball.core.signals import Signal, SignalKind
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.host import resources
from flyball.stores.sqlite import schema
from flyball.wake.mailbox import folder_for
from tests.cli.kit import Cli, People, edit


def kinds(cli: Cli, *words: str) -> dict[tuple[str, str], bool]:
    """(kind, pool) of every finding, and whether it is fixed."""
    found = cli("doctor", "--json", *words).json["findings"]
    return {(finding["kind"], finding["pool"]): finding["fixed"] for finding in found}


def test_no_state_is_healthy_and_stays_none(cli: Cli) -> None:
    result = cli("doctor", "--fix")
    assert result.code == 0
    assert result.out.startswith("healthy: no state yet")
    assert not cli.home.exists()


def test_a_state_in_use_is_healthy(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    people.holds("anthropic", "blog", "t-1")
    people.waits("anthropic", "blog", "t-2")
    governor.demand("anthropic", "shop")
    result = cli("doctor")
    assert (result.code, result.out.split()[0]) == (0, "healthy")
    assert kinds(cli) == {}


def test_dead_leases_and_asks_are_found_and_taken_back(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    holder = people.holds("anthropic", "blog", "t-1")
    people.dies(people.waits("anthropic", "blog", "t-2"))
    waiter = people.waits("anthropic", "shop", "t-3")
    people.dies(holder)
    result = cli("doctor")
    assert result.code == 1
    assert f"anthropic: 1 dead lease: blog/t-1 (pid {holder})" in result.out
    assert "anthropic: 1 dead ask: blog/t-2" in result.out
    assert result.out.rstrip().endswith("flyball doctor --fix")
    fixed = cli("doctor", "--fix")
    assert fixed.code == 0
    assert fixed.out.startswith("healthy, 2 fixed")
    # The slot went on to the ask that waited for it.
    (pool,) = governor.status().pools
    assert [lease.pid for lease in pool.leases] == [waiter]


def test_a_dead_lease_is_a_problem_where_it_keeps_an_ask_waiting_in_another_pool(
    cli: Cli, governor: Governor, people: People
) -> None:
    governor.set_machine(MachineSettings(ceiling=1))
    holder = people.holds("anthropic", "blog", "t-1")
    people.waits("openai", "shop", "t-2")
    people.dies(holder)
    assert cli("doctor").code == 1


def test_a_dead_lease_that_fills_the_cap_is_a_problem(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    people.dies(people.holds("anthropic", "blog", "t-1"))
    assert cli("doctor").code == 1


def test_a_dead_lease_that_blocks_no_ask_is_only_noted_such_as_what_replace_leaves(cli: Cli) -> None:
    command = [sys.executable, "-m", "flyball", "exec", "--pool", "w", "--replace", "--", "true"]
    assert subprocess.run(command, timeout=60).returncode == 0
    found = cli("doctor")
    assert (found.code, found.out.split()[:3]) == (0, ["healthy,", "1", "note"])
    assert "no ask needs it now" in found.out
    assert kinds(cli, "--fix") == {("dead-lease", "w"): True}


def test_demand_that_ran_out_or_lost_its_process_is_stale(cli: Cli, governor: Governor) -> None:
    governor.demand("anthropic", "blog", ttl_s=600)
    edit(cli, "UPDATE demand SET until = 1")
    assert kinds(cli) == {("stale-demand", "anthropic"): False}
    assert cli("doctor").code == 0  # it counts for nothing any more
    assert kinds(cli, "--fix") == {("stale-demand", "anthropic"): True}
    governor.demand("openai", "blog", ttl_s=600)
    edit(cli, "UPDATE demand SET start = 1")
    assert cli("doctor").code == 1  # it still takes a share from the others
    assert kinds(cli, "--fix") == {("stale-demand", "openai"): True}
    assert kinds(cli) == {}


def test_a_lease_from_another_host_that_expired_is_dead(cli: Cli, governor: Governor, people: People) -> None:
    people.holds("anthropic", "blog", "t-1")
    edit(cli, "UPDATE claim SET host = 'elsewhere', expires_at = 1")
    assert kinds(cli, "--fix") == {("dead-lease", "anthropic"): True}


def test_an_open_breaker_is_a_problem_that_only_time_or_a_person_mends(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=1)
    governor.report("anthropic", Signal(SignalKind.THROTTLED), project="blog", name="t")
    result = cli("doctor", "--fix")
    assert result.code == 1
    assert "anthropic: breaker open for 5 min: a throttle at the floor" in result.out
    assert "flyball pool reset anthropic" in result.out
    assert kinds(cli) == {("breaker-open", "anthropic"): False}


@pytest.mark.parametrize(("reopens", "kind"), [(1, "breaker-trial"), (2, "breaker-flapping")])
def test_a_breaker_flaps_after_two_re_opens_without_a_clean_close(
    cli: Cli, governor: Governor, reopens: int, kind: str
) -> None:
    state = BreakerState(Phase.TRIAL, 1.0, reopens, 1.0, "the trial was throttled")
    internals(governor).import_pool("anthropic", {"cap": 4}, LearnedState(CapState(1.0), state))
    assert kinds(cli) == {(kind, "anthropic"): False}


@pytest.mark.parametrize(
    ("ago_s", "level", "found"), [(3600, 1.0, True), (600, 1.0, False), (3600, 2.0, False)]
)
def test_a_cap_is_pinned_when_it_sits_at_its_floor_long_after_a_real_cut(
    cli: Cli, governor: Governor, ago_s: float, level: float, found: bool
) -> None:
    cut_at = internals(governor).store.now() - ago_s
    internals(governor).import_pool(
        "anthropic", {"cap": 8}, LearnedState(CapState(level, last_cut_at=cut_at))
    )
    assert (("cap-at-floor", "anthropic") in kinds(cli)) is found


def test_a_pool_that_is_as_small_as_its_floor_is_not_pinned(cli: Cli, governor: Governor) -> None:
    cut_at = internals(governor).store.now() - 3600
    internals(governor).import_pool(
        "anthropic", {"cap": 1, "cap_ceiling": 1}, LearnedState(CapState(1.0, last_cut_at=cut_at))
    )
    assert kinds(cli) == {}


def test_counts_that_do_not_match_the_leases_are_counted_again(
    cli: Cli, governor: Governor, people: People
) -> None:
    governor.set_pool("anthropic", cap=2, adaptive=False)
    people.holds("anthropic", "blog", "t-1")
    people.holds("anthropic", "blog", "t-2")
    people.waits("anthropic", "shop", "t-3")
    edit(cli, "UPDATE pool SET in_use = 7, low_in_use = -1, waiting = 0")
    edit(cli, "UPDATE project SET in_use = 0 WHERE name = 'blog'")
    edit(cli, "DELETE FROM project WHERE name = 'shop'")
    out = cli("doctor").out
    assert "anthropic: counts do not match the leases" in out
    assert "in_use 7 instead of 2" in out
    assert "in_use 0 instead of 2 for blog" in out
    assert kinds(cli, "--fix") == {("miscount", "anthropic"): True}
    (pool,) = governor.status().pools
    assert (pool.in_use, pool.waiting) == (2, 1)
    assert {p.name: (p.in_use, p.waiting) for p in pool.projects} == {"blog": (2, 0), "shop": (0, 1)}
    people.all_die()
    assert kinds(cli, "--fix") == {("dead-lease", "anthropic"): True, ("dead-ask", "anthropic"): True}
    assert kinds(cli) == {}


def test_two_processes_under_one_name_are_worth_a_note(cli: Cli, people: People) -> None:
    people.holds("anthropic", "blog", "t-1")
    people.holds("anthropic", "blog", "t-1")
    result = cli("doctor")
    assert result.code == 0
    assert "anthropic: blog/t-1 runs 2 times" in result.out


# -- the file -----------------------------------------------------------------------------------


def test_a_damaged_file_is_set_aside_never_deleted_and_a_new_one_started(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--cap", "3")
    cli.database.write_bytes(b"this is not a database, it was one once" * 100)
    assert cli("status").code == 74
    result = cli("doctor")
    assert result.code == 1
    assert "is damaged" in result.out
    assert cli.database.read_bytes().startswith(b"this is not")
    fixed = cli("doctor", "--fix")
    assert fixed.code == 0
    assert "governor.db.damaged-1; a new, empty state was started" in fixed.out
    assert "not counted" in fixed.out
    assert (cli.home / "governor.db.damaged-1").read_bytes().startswith(b"this is not")
    assert cli("status").code == 0
    cli.database.write_bytes(b"once more, not a database at all....." * 100)
    cli("doctor", "--fix")
    assert (cli.home / "governor.db.damaged-2").exists()


def test_a_damaged_page_is_noticed(cli: Cli, governor: Governor) -> None:
    for number in range(60):
        governor.set_pool(f"pool-{number}", cap=3)
    governor.close()
    content = bytearray(cli.database.read_bytes())
    content[4096 * 2 : 4096 * 6] = os.urandom(4096 * 4)
    cli.database.write_bytes(bytes(content))
    assert list(kinds(cli)) == [("damaged", "")]
    assert kinds(cli, "--fix") == {("damaged", ""): True}


def test_an_emptied_file_is_taken_for_a_new_one_and_noted(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--cap", "3")
    os.truncate(cli.database, 0)
    result = cli("doctor", "--fix")
    assert result.code == 0
    assert result.out.startswith("healthy, 1 note")
    assert f"{cli.database} is empty" in result.out
    assert cli("exec", "--pool", "w", "--no-wait", "--", "true").code == 0
    assert kinds(cli) == {}


def test_learned_state_that_cannot_be_read_is_damage_too(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=3)
    governor.close()
    edit(cli, "UPDATE mind SET memory = '{'")
    assert kinds(cli) == {("damaged", ""): False}
    assert kinds(cli, "--fix") == {("damaged", ""): True}


def test_a_newer_layout_is_left_alone(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=3)
    governor.close()
    edit(cli, "PRAGMA user_version = 99")
    before = cli.database.read_bytes()
    result = cli("doctor", "--fix")
    assert result.code == 1
    assert "was written by a newer flyball" in result.out
    assert "upgrade flyball" in result.out
    assert cli.database.read_bytes() == before


def test_another_programs_database_is_left_alone(cli: Cli) -> None:
    cli.home.mkdir(mode=0o700)
    edit(cli, "CREATE TABLE bookmarks (url TEXT)")
    cli.database.chmod(0o600)
    before = cli.database.read_bytes()
    assert kinds(cli, "--fix") == {("foreign-file", ""): False}
    assert cli.database.read_bytes() == before


def test_an_older_layout_is_upgraded(cli: Cli) -> None:
    cli.home.mkdir(mode=0o700)
    (script,) = Path(schema.__file__).parent.glob("001_*.sql")
    connection = sqlite3.connect(cli.database)
    connection.executescript(script.read_text())
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    cli.database.chmod(0o600)
    assert kinds(cli, "--fix") == {("old-layout", ""): True}
    assert cli("status").code == 0


def test_state_that_others_may_read_is_made_private(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=3)
    cli.home.chmod(0o755)
    cli.database.chmod(0o644)
    result = cli("doctor")
    assert result.code == 1
    assert f"{cli.home} is 0755" in result.out
    assert cli("doctor", "--fix").code == 0
    assert stat.S_IMODE(cli.home.stat().st_mode) == 0o700
    assert stat.S_IMODE(cli.database.stat().st_mode) == 0o600


def test_a_folder_that_is_not_flyballs_own_keeps_its_permissions(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    monkeypatch.setenv("FLYBALL_URL", f"sqlite://{shared / 'state.db'}")
    cli("pool", "set", "anthropic", "--cap", "3")
    cli("doctor", "--fix")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755


def test_a_home_that_is_not_a_folder_and_a_file_that_is_one_are_unusable(cli: Cli) -> None:
    cli.home.write_text("not a folder")
    result = cli("doctor", "--fix")
    assert result.code == 1
    assert f"{cli.home} is not a folder" in result.out
    cli.home.unlink()
    cli.home.mkdir(mode=0o700)
    cli.database.mkdir(mode=0o700)
    assert kinds(cli, "--fix") == {("unusable", ""): False}


def _powerless(*words: str) -> subprocess.CompletedProcess[str]:
    """Root may read and write anything; modes mean something only without its powers."""
    command = [sys.executable, "-m", "flyball", *words]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("running as root without setpriv: nothing is barred here")
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "mode"), [("governor.db", 0o400), ("governor.db", 0), ("governor.db.lock", 0o400)]
)
def test_a_file_one_may_not_write_is_a_problem_and_ones_own_is_made_usable_again(
    cli: Cli, name: str, mode: int
) -> None:
    cli("pool", "set", "anthropic", "--cap", "3")
    (cli.home / name).chmod(mode)
    assert _powerless("exec", "--", "true").returncode == 74
    found = _powerless("doctor")
    assert found.returncode == 1
    assert f"{name} is {mode:04o}" in found.stdout
    assert "make the folder" not in found.stdout
    fixed = _powerless("doctor", "--fix")
    assert (fixed.returncode, fixed.stdout.split()[:3]) == (0, ["healthy,", "1", "fixed"])
    assert stat.S_IMODE((cli.home / name).stat().st_mode) == 0o600
    assert _powerless("exec", "--", "true").returncode == 0


def test_a_lock_that_is_not_a_file_is_unusable(cli: Cli) -> None:
    cli.home.mkdir(mode=0o700)
    (cli.home / "governor.db.lock").mkdir()
    assert kinds(cli, "--fix") == {("unusable", ""): False}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("place", ["/proc/nope", "/proc/self"])
def test_a_home_where_nothing_can_be_made_is_a_problem_though_root_may_write_it(
    cli: Cli, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_HOME", place)
    assert cli("exec", "--", "true").code == 74
    assert cli("doctor").code == 1
    assert kinds(cli) == {("unusable", ""): False}


# -- around it ----------------------------------------------------------------------------------


def test_a_reboot_is_noted_and_gone_on_from(cli: Cli, governor: Governor, people: People) -> None:
    people.holds("anthropic", "blog", "t-1")
    governor.close()
    edit(cli, "UPDATE clock SET boot = 'the boot before'")
    assert kinds(cli) == {("other-boot", ""): False}
    assert cli("doctor").code == 0
    assert kinds(cli, "--fix") == {("other-boot", ""): True}
    assert kinds(cli) == {}


def test_after_a_reboot_the_time_that_is_shown_goes_on(cli: Cli, governor: Governor, people: People) -> None:
    people.holds("anthropic", "blog", "t-1")
    governor.close()
    edit(cli, "UPDATE clock SET boot = 'the boot before', seen_at = seen_at + 5e6")
    edit(cli, "UPDATE claim SET granted_at = granted_at + 5e6 - 120")
    assert 100 < cli("status", "--json").json["pools"][0]["leases"][0]["held_s"] < 200


def test_a_clock_that_was_seen_in_the_future_is_trouble(cli: Cli, governor: Governor, people: People) -> None:
    people.holds("anthropic", "blog", "t-1")
    edit(cli, "UPDATE clock SET seen_at = seen_at + 3600")
    edit(cli, "UPDATE claim SET granted_at = granted_at + 3600")
    result = cli("doctor")
    assert result.code == 1
    assert "the state was last used 60 min in the future" in result.out
    assert "anthropic: leases or asks that begin in the future" in result.out


def test_a_wall_clock_set_back_changes_nothing(
    cli: Cli, governor: Governor, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.holds("anthropic", "blog", "t-1")
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    assert kinds(cli) == {}


def test_sockets_without_a_listener_are_swept(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=3)
    folder = folder_for(cli.home)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(str(folder / "1-1"))
    left.close()
    live = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    live.bind(str(folder / "1-2"))
    assert kinds(cli) == {("sockets", ""): False}
    assert cli("doctor").code == 0
    assert kinds(cli, "--fix") == {("sockets", ""): True}
    assert sorted(path.name for path in folder.iterdir()) == ["1-2"]
    live.close()


def test_two_homes_are_a_problem_where_both_have_state(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("pool", "set", "anthropic", "--cap", "3")
    monkeypatch.setenv("FLYBALL_URL", f"sqlite://{tmp_path / 'other.db'}")
    result = cli("doctor")
    assert result.code == 1
    assert "FLYBALL_URL and FLYBALL_HOME are both set" in result.out
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "unused"))
    assert cli("doctor").code == 0


def test_the_same_place_named_twice_is_fine(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_URL", f"sqlite://{cli.database}")
    cli("pool", "set", "anthropic", "--cap", "3")
    assert kinds(cli) == {}


def test_a_network_disk_and_an_old_sqlite_are_found_before_the_state_is_opened(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 1 0:1 / {tmp_path} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(resources, "MOUNTS", mounts)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 30, 0))
    assert kinds(cli) == {("network-disk", ""): False, ("old-sqlite", ""): False}


def test_a_stopped_process_that_holds_the_lock_is_named(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=3)
    code = (
        "import sys; from flyball.host.lock_file import LockFile; LockFile.of(sys.argv[1]).acquire();"
        "print('ready', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, f"{cli.database}.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGSTOP)
        out = cli("doctor").out
        assert f"kill -CONT {holder.pid}" in out
    finally:
        holder.kill()
        holder.communicate()


def test_state_in_memory_has_nothing_to_examine(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_URL", "memory:")
    assert cli("doctor").code == 0


def test_a_window_that_is_not_spent_is_worth_a_note(cli: Cli, governor: Governor) -> None:
    governor.set_pool("x", cap=1, windows={"token": "200/min", "requests": "60/min"})
    assert "token" not in cli("doctor").out
    governor.acquire("x", cost={"tokens": 5}).release()
    result = cli("doctor")
    assert result.code == 0
    assert "no call has used anything of the window 'token'" in result.out
    assert "'requests'" not in result.out
    governor.acquire("x", cost={"token": 5}).release()
    assert "token" not in cli("doctor").out
