"""A call that is cut off by a signal, or comes in the middle of another, harms no other call.

Each in a process of its own: signals and the garbage collector belong to the whole process, and what hangs is
ended.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PATIENCE_S = 120
URLS = pytest.mark.parametrize("url", [None, "memory:"])


def ran(script: str, *arguments: object) -> str:
    """What a script printed that came to its end."""
    told = [sys.executable, "-c", textwrap.dedent(script), *(str(argument) for argument in arguments)]
    done = subprocess.run(told, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_after_a_storm_of_interrupts_every_caller_is_served_as_before(home: Path) -> None:
    """Wherever an exception out of a signal handler falls, no lock and no transaction stays behind."""
    said = ran("""
        import random, signal, subprocess, sys, threading
        import flyball
        from flyball.governor.internals import internals

        class Cut(Exception): pass

        def cut(*_): raise Cut

        gov = flyball.Governor()
        gov.set_pool("p", cap=1_000_000, adaptive=False)
        signal.signal(signal.SIGALRM, cut)
        for _ in range(400):
            try:
                # Again after a while: one that falls into a finaliser is swallowed by the interpreter.
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.0006), 5.0)
                while True:
                    gov.acquire("p").release()
            except Cut:
                pass
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        gov.acquire("p").release()
        other = threading.Thread(target=lambda: print("thread", gov.acquire("p", timeout=60).pool))
        other.start()
        other.join()
        ask = "import flyball; print('process', flyball.Governor().acquire('p', timeout=60).pool)"
        subprocess.run([sys.executable, "-c", ask], check=True)
        print("counts", internals(gov).recount())
        """)
    assert sorted(said.split("\n")) == ["", "counts []", "process p", "thread p"]


@URLS
def test_a_verb_that_an_exception_cuts_off_at_any_call_leaves_its_store_to_the_other_threads(
    home: Path, url: str | None
) -> None:
    """Where the interpreter may call a signal handler: as a function begins, and as one written in C returns.

    The exceptions are kept, and with them the frames: nothing is cleaned up because a frame goes away.
    """
    said = ran(
        """
        import sys, threading
        from dataclasses import replace
        import flyball
        from flyball.governor.internals import internals

        class Cut(Exception): pass

        PLACES = ("flyball.stores", "flyball.host.lock_file", "contextlib")
        gov = flyball.Governor(*sys.argv[1:])
        gov.set_pool("p", cap=1_000_000, adaptive=False, windows={"tokens": "100M/min"})
        store, kept, asks = internals(gov).store, [], []
        admit = type(store).admit
        type(store).admit = lambda self, ask, **rest: asks.append(ask) or admit(self, ask, **rest)
        gov.acquire("p").release()
        type(store).admit = admit
        [plain] = asks
        asks = [plain, replace(plain, cost={"tokens": 1})]

        def pair(ask):
            verdict, _ = store.admit(ask, park=False)
            finished = flyball.core.pool.model.Outcome.FINISHED
            store.release(flyball.stores.port.Release(verdict.claim_id, finished))
            store.poll(verdict.claim_id, advance=False)

        def cut_off_at(n, ask):
            seen = 0
            def profile(frame, event, _):
                nonlocal seen
                if event not in ("call", "c_return"):
                    return
                if not frame.f_globals.get("__name__", "").startswith(PLACES):
                    return
                seen += 1
                if seen == n:
                    raise Cut
            try:
                sys.setprofile(profile)
                pair(ask)
            except Cut as cut:
                kept.append(cut)
                return True
            finally:
                sys.setprofile(None)
            return False

        def served():
            pair(plain)
            done.append(True)

        for ask in asks:
            n = 1
            while cut_off_at(n, ask):
                done = []
                other = threading.Thread(target=served, daemon=True)
                other.start()
                other.join(20)
                assert done, f"cut off at call {n}, the store stays locked"
                n += 1
            pair(ask)
        assert len(kept) > 100, len(kept)
        print("counts", internals(gov).recount())
        """,
        *([url] if url else []),
    )
    assert said == "counts []\n"


@URLS
def test_a_signal_handler_may_release_a_lease_in_the_middle_of_anything(home: Path, url: str | None) -> None:
    said = ran(
        """
        import os, signal, sys, threading, time
        import flyball

        gov = flyball.Governor(*sys.argv[1:])
        gov.set_pool("p", cap=1000, adaptive=False)
        mine = [gov.acquire("p") for _ in range(20)]
        signal.signal(signal.SIGUSR1, lambda *_: mine and mine.pop().release())

        def signals():
            while mine:
                time.sleep(0.005)
                os.kill(os.getpid(), signal.SIGUSR1)

        sender = threading.Thread(target=signals)
        sender.start()
        while mine:
            with gov.slot("p"):
                pass
        sender.join()
        gov.acquire("p").release()
        print(sum(pool.in_use for pool in gov.status().pools))
        """,
        *([url] if url else []),
    )
    assert said == "0\n"


@URLS
def test_a_slot_that_the_garbage_collector_gives_back_waits_for_no_lock(home: Path, url: str | None) -> None:
    said = ran(
        """
        import gc, sys
        import flyball

        gov = flyball.Governor(*sys.argv[1:])
        gov.set_pool("p", cap=100_000, adaptive=False, windows={"tokens": "100M/min"})
        gc.set_threshold(30)

        def tokens():
            with gov.slot("p", cost={"tokens": 1}):
                yield "a"

        class Box: pass

        for _ in range(300):
            box = Box()
            box.me, box.tokens = box, tokens()
            next(box.tokens)
        del box
        gc.collect()
        gov.acquire("p").release()
        print(sum(pool.in_use for pool in gov.status().pools))
        """,
        *([url] if url else []),
    )
    assert said == "0\n"


def test_threads_may_fork_at_the_same_time(home: Path) -> None:
    said = ran("""
        import os
        from concurrent.futures import ThreadPoolExecutor
        import flyball

        gov = flyball.Governor()
        gov.acquire("p").release()

        def fork(_):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)

        def close(_):
            fork(_)
            flyball.Governor().close()

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(fork, range(150)))
            list(threads.map(close, range(50)))
        gov.acquire("p").release()
        print("all of them")
        """)
    assert said == "all of them\n"


def test_a_process_without_descriptors_left_takes_no_holder_for_dead(home: Path) -> None:
    said = ran("""
        import os, resource, subprocess
        import flyball

        gov = flyball.Governor()
        gov.set_pool("p", cap=1, adaptive=False)
        other = subprocess.Popen(["sleep", "60"])
        gov.hold(other.pid, "p")

        def ask():
            try:
                print("granted", gov.acquire_nowait("p").pool)
            except flyball.AtCapacityError:
                print("refused")

        ask()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        ask()
        for fd in taken:
            os.close(fd)
        other.kill()
        other.wait()
        ask()
        """)
    assert said == "refused\nrefused\ngranted p\n"
