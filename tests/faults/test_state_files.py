"""State that is full, read-only, damaged, too new or on the wrong disk: a clear no, and nothing lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import flyball
from flyball.errors import StoreFullError, StoreReadOnlyError, StoreUnreadableError
from flyball.governor.internals import internals
from flyball.host import exit_status, resources
from flyball.stores.sqlite.schema import SCHEMA_VERSION, schema_steps
from flyball.stores.sqlite.store import SqliteStore
from tests.waiting import until

NAMES = [
    "with space",
    "a/b\\c",
    "quote'\"`",
    "émoji 🚀",
    "my_app",
    "my-app",
    "%20?#&",
    "..",
    "-dash",
    "ﷺ" * 60,
]


def database(home: Path) -> Path:
    return home / "governor.db"


def in_use(gov: flyball.Governor, pool: str = "anthropic") -> int:
    return next((p.in_use for p in gov.status().pools if p.name == pool), 0)


def test_state_is_private(home: Path) -> None:
    with flyball.slot():
        files = [home, *home.iterdir()]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files if path.exists()}
    assert modes.pop("home") == 0o700
    assert modes.pop("wake") == 0o700
    assert set(modes.values()) == {0o600}


def test_a_full_disk_refuses_the_ask_and_a_release_goes_out_when_there_is_room_again(home: Path) -> None:
    gov = flyball.Governor()
    lease = gov.acquire()
    store = internals(gov).store
    assert isinstance(store, SqliteStore)
    connection = store._ready().connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFullError, match="free some disk space"):
        _fill(gov)
    connection.execute("PRAGMA max_page_count = 1073741823")
    lease.release()
    assert in_use(gov) == 0


def _fill(gov: flyball.Governor) -> None:
    for number in range(10_000):
        gov.acquire(f"{'x' * 190}{number}")


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare to mount a tiny disk")
def test_a_really_full_disk_never_masks_the_callers_error(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "full.py"
    script.write_text(
        "import flyball, os\n"
        "gov = flyball.Governor()\n"
        "try:\n"
        "    with gov.slot('p', timeout=5):\n"
        "        filler = open(os.environ['FLYBALL_HOME'] + '/filler', 'wb', buffering=0)\n"
        "        try:\n"
        "            while True: filler.write(b'x' * 4096)\n"
        "        except OSError as error: print('disk:', error.strerror)\n"
        "        for _ in range(300):\n"
        "            try: gov.set_pool('p' * 150, cap=3, weights={'w' * 100: 2.0})\n"
        "            except flyball.StoreError as error: print('store:', type(error).__name__); break\n"
        "        raise KeyError('mine')\n"
        "except KeyError as error: print('caller sees:', error)\n"
        "filler.close()\n"
        "os.unlink(os.environ['FLYBALL_HOME'] + '/filler')\n"
        "gov.acquire_nowait('p').release()\n"
        "print('in use:', [p.in_use for p in gov.status().pools if p.name == 'p'])\n"
    )
    done = _on_tiny_disk(tmp_path / "disk", f"exec {sys.executable} {script}")
    assert "disk: No space left on device" in done.stdout, done.stderr
    assert "caller sees: 'mine'" in done.stdout
    assert done.stdout.endswith("in use: [0]\n")


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare to mount a tiny disk")
@pytest.mark.parametrize("verb", ["status", "exec -- true", "doctor"])
def test_a_full_disk_is_called_that_by_readers_asks_and_the_doctor(tmp_path: Path, verb: str) -> None:
    flyball_ = f"{sys.executable} -m flyball"
    done = _on_tiny_disk(
        tmp_path / "disk",
        f"chmod 700 $FLYBALL_HOME && {flyball_} pool set anthropic --cap 2 && echo made; "
        f"cat /dev/zero > $FLYBALL_HOME/filler 2>/dev/null; {flyball_} {verb}; echo $?",
    )
    assert "made" in done.stdout, done.stderr
    assert done.stdout.endswith("1\n" if verb == "doctor" else "74\n")
    assert "free some disk space" in (done.stdout if verb == "doctor" else done.stderr)
    assert "I/O error" not in done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare to mount a tiny disk")
def test_exec_says_in_one_line_that_its_slot_could_not_be_given_back_and_who_takes_it(tmp_path: Path) -> None:
    flyball_, at_once = f"{sys.executable} -m flyball", "exec --pool w --project blog --name t-1 --no-wait"
    done = _on_tiny_disk(
        tmp_path / "disk",
        f"{flyball_} pool set w --cap 1 --static > /dev/null; fill='cat /dev/zero > {tmp_path}/disk/filler'; "
        f'{flyball_} {at_once} -- sh -c "$fill 2> /dev/null; exit 7"; echo $?; '
        f"rm $FLYBALL_HOME/filler; {flyball_} {at_once} -- echo next",
    )
    assert done.stdout == "7\nnext\n", done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("flyball: the slot of blog/t-1 on w could not be given back now (no space left")
    assert line.endswith("the next ask takes it back")


def _on_tiny_disk(disk: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script whose FLYBALL_HOME is a disk of half a megabyte."""
    disk.mkdir()
    mounted = f"mount -t tmpfs -o size=512k tmpfs {disk} && export FLYBALL_HOME={disk} && {script}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "Operation not permitted" in done.stderr and not done.stdout:
        pytest.skip("this system does not allow mounting in a user namespace")
    return done


def test_a_home_that_may_not_be_written_is_refused_but_can_still_be_read(home: Path) -> None:
    flyball.Governor().set_pool("anthropic", cap=3, adaptive=False)
    code = (
        "import flyball\n"
        "print(flyball.Governor().status().pools[0].cap)\n"
        "try: flyball.Governor().acquire_nowait()\n"
        "except flyball.StoreError as error: print(type(error).__name__, 'FLYBALL_HOME' in str(error))\n"
    )
    for path in home.iterdir():
        path.chmod(0o400 if path.is_file() else 0o500)
    home.chmod(0o500)
    try:
        done = _without_root_powers(code, home)
    finally:
        home.chmod(0o700)
    assert done.stdout == "3\nStoreReadOnlyError True\n", done.stderr


def _without_root_powers(code: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Root may write anything; read-only means something only without its powers."""
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
        if shutil.which("setpriv") is None:
            pytest.skip("running as root without setpriv: nothing is read-only here")
        command = [*drop, *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_a_damaged_file_is_refused_with_the_way_out_and_left_as_it_is(home: Path) -> None:
    home.mkdir(mode=0o700)
    garbage = b"this is not a database, but it is valuable" * 100
    database(home).write_bytes(garbage)
    with pytest.raises(StoreUnreadableError, match=r"doctor --fix"):
        flyball.Governor().acquire_nowait()
    assert database(home).read_bytes() == garbage


def test_a_file_damaged_in_the_middle_is_refused_not_ignored(home: Path) -> None:
    gov = flyball.Governor()
    gov.set_pool("anthropic", cap=1, adaptive=False)
    for number in range(50):
        gov.set_pool(f"pool {number}", cap=1)
    gov.close()
    size = database(home).stat().st_size
    with open(database(home), "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with pytest.raises(flyball.StoreError, match=r"doctor --fix"):
        flyball.Governor().acquire_nowait()


def test_a_file_from_a_newer_flyball_is_refused_and_not_touched(home: Path) -> None:
    flyball.Governor().set_pool("anthropic", cap=1)
    with sqlite3.connect(database(home)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 7}")
    before = database(home).read_bytes()
    with pytest.raises(StoreUnreadableError, match="newer flyball"):
        flyball.Governor().acquire_nowait()
    assert database(home).read_bytes() == before


def test_a_newer_flyball_that_comes_while_others_run_starts_nothing_of_theirs_and_ends_none(
    home: Path, tmp_path: Path
) -> None:
    """The holder's command ends as it would; the waiter, who would be next, says what to do instead."""
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    gate.touch()
    gov = flyball.Governor()
    gov.set_pool("anthropic", cap=1, adaptive=False)

    def start(*command: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "flyball", "exec", "--", *command]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    holder = start("sh", "-c", f"while [ -e {gate} ]; do sleep 0.02; done")
    until(lambda: in_use(gov) == 1)
    waiter = start("touch", str(ran))
    until(lambda: gov.status().pools[0].waiting == 1)
    with sqlite3.connect(database(home)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    gate.unlink()
    _, said = holder.communicate(timeout=120)
    assert (holder.returncode, "newer flyball" in said) == (0, True)
    _, said = waiter.communicate(timeout=120)
    assert (waiter.returncode, "upgrade flyball" in said) == (exit_status.STORE, True)
    assert not ran.exists()


def test_a_database_of_another_program_is_refused(home: Path) -> None:
    home.mkdir(mode=0o700)
    with sqlite3.connect(database(home)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(StoreUnreadableError, match="another program"):
        flyball.Governor().acquire_nowait()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_an_older_layout_is_brought_forward_with_everything_in_it(home: Path, version: int) -> None:
    home.mkdir(mode=0o700)
    connection = sqlite3.connect(database(home), isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    for _, script in schema_steps()[:version]:
        connection.executescript(script)
    connection.execute("PRAGMA application_id = 0x666C7962")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("""UPDATE machine SET settings = '{"ceiling": 5}'""")
    connection.close()
    gov = flyball.Governor()
    gov.acquire().release()
    assert gov.status().machine.ceiling == 5


def test_steps_of_the_schema_are_numbered_without_gaps() -> None:
    assert [number for number, _ in schema_steps()] == list(range(1, SCHEMA_VERSION + 1))


def test_a_network_file_system_is_refused_with_two_ways_out(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / {tmp_path} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(resources, "MOUNTS", mounts)
    with pytest.raises(flyball.StoreError, match=r"nfs4.*FLYBALL_HOME.*FLYBALL_URL"):
        flyball.Governor().acquire_nowait()


@pytest.mark.parametrize("how", ["removed", "set aside"])
def test_a_state_file_that_is_taken_away_under_a_process_is_noticed(
    home: Path, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the processes that were there and the new ones each have the whole cap."""
    monkeypatch.setattr("flyball.stores.sqlite.store.LOOK_EVERY_S", 0.0)
    old, new = flyball.Governor(), flyball.Governor()
    old.set_pool("p", cap=2, adaptive=False)
    if how == "removed":
        shutil.rmtree(home)
    else:
        for suffix in ("-wal", "-shm", ""):
            (home / f"governor.db{suffix}").rename(home / f"governor.db.damaged-1{suffix}")
    new.set_pool("p", cap=1, adaptive=False)
    lease = old.acquire_nowait("p")
    assert "was removed or replaced" in caplog.text
    with pytest.raises(flyball.AtCapacityError):
        new.acquire_nowait("p")
    lease.release()
    new.acquire_nowait("p").release()
    assert internals(old).recount() == []


def test_two_homes_know_nothing_of_each_other(tmp_path: Path) -> None:
    one, two = (flyball.Governor(f"sqlite://{tmp_path / name}/governor.db") for name in ("one", "two"))
    one.set_pool("p", cap=1, adaptive=False)
    one.acquire("p")
    assert not two.status().pools
    two.acquire_nowait("p")
    assert (in_use(one, "p"), in_use(two, "p")) == (1, 1)


@pytest.mark.parametrize("name", NAMES)
def test_any_printable_name_works_for_pools_projects_and_tasks(home: Path, name: str) -> None:
    gov = flyball.Governor()
    with gov.slot(name, project=name, name=name):
        pool = next(p for p in gov.status().pools if p.name == name)
        assert [(lease.project, lease.name) for lease in pool.leases] == [(name, name)]


@pytest.mark.parametrize("name", ["", "x" * 201, "new\nline", "\x00", "\ud800"])
def test_a_name_that_cannot_be_shown_is_refused_before_anything_is_written(home: Path, name: str) -> None:
    gov = flyball.Governor()
    with pytest.raises(flyball.UsageError):
        gov.acquire("anthropic", project="p", name=name)
    assert not gov.status().pools


def test_a_home_with_a_strange_and_long_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("long " * 20) / "ünï?#%41" / "home"
    monkeypatch.setenv("FLYBALL_HOME", str(deep))
    with flyball.slot():
        assert (deep / "governor.db").exists()


def test_an_empty_home_variable_is_an_error_not_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_HOME", "")
    with pytest.raises(flyball.UsageError, match="FLYBALL_HOME"):
        flyball.Governor()


def test_reading_makes_no_state_where_there_is_none(home: Path) -> None:
    assert flyball.Governor().status().pools == ()
    assert not home.exists()


def test_a_lock_file_that_cannot_be_made_is_a_clear_error(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "governor.db.lock").mkdir()
    with pytest.raises(StoreReadOnlyError, match="Is a directory"):
        flyball.Governor().acquire_nowait()
