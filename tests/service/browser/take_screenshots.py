"""The pictures of the page in the docs: ``python -m tests.service.browser.take_screenshots``.

Everything in them is real: ``flyball serve`` over a state in which the demo's workers call a provider that
answers 429, loses half of its capacity and then all of it for a while; beside them a few threads share two
other pools, two nodes hold shares of a fourth, and one process has been killed. It takes three minutes,
because it is three minutes that the charts show.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flyball.cli.commands.installation.demo import SPEEDUP, TEAMS, faster_settings
from flyball.governor.governor import Governor
from flyball.service.tokens import Scope
from flyball.sim.demo.trial_run import Setup, TrialRun
from flyball.sim.demo.worker import Workload
from flyball.sim.provider.capacity import Capacity
from tests.service.browser.browser import Browser, find
from tests.service.browser.conftest import NO_BROWSER
from tests.service.browser.served import Served
from tests.service.browser.world import die

IMAGES = Path(__file__).parents[3] / "docs" / "images"
HALF_S, NONE_S, AGAIN_S, END_S = 60.0, 95.0, 115.0, 165.0
"""When the provider loses capacity, has none, and has it back; when the last picture is taken."""
DESKTOP, LOW, PHONE = (1280, 880), (1280, 600), (390, 844)


def main() -> int:
    found = find()
    if found is None:
        print(NO_BROWSER, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    browser = Browser(*found)
    try:
        _of_an_empty_one(browser)
        _of_a_busy_one(browser)
    finally:
        browser.close()
    return 0


def _of_an_empty_one(browser: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="flyball-") as folder:
        served = Served(Path(folder)).start()
        browser.viewport(*LOW)
        browser.open(served.url)
        browser.until_text("#empty", "No pool")
        _keep(browser, "empty")
        served.close()


def _of_a_busy_one(browser: Browser) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="flyball-", ignore_cleanup_errors=True) as folder,
        _load(Path(folder)),
    ):
        served = Served(Path(folder) / "home").start()
        began = time.monotonic()
        _keep_neighbours_busy(Governor(served.address))
        browser.viewport(*DESKTOP)
        browser.open(served.url)

        def at(seconds: float) -> None:
            browser.until(lambda: time.monotonic() - began > seconds, "the time", patience_s=seconds + 1)

        at(NONE_S)
        browser.media(scheme="dark")
        browser.until_text(".badge", "breaker open", patience_s=AGAIN_S - NONE_S)
        _keep(browser, "dark")
        browser.media()
        at(END_S)
        _keep(browser, "light")
        _of_a_dialog(browser, served)
        browser.viewport(*PHONE, phone=True)
        browser.open(served.url)
        browser.until_text("#link", "live")
        browser.until_text("#facts", "breaker open")
        _keep(browser, "phone")
        browser.viewport(*LOW)
        served.stop(signal.SIGKILL)
        browser.until_text("#link", "trying again")
        _keep(browser, "gone")
        served.close()


def _of_a_dialog(browser: Browser, served: Served) -> None:
    browser.viewport(*LOW)
    browser.click("#token-button")
    browser.type("#token-field", served.token(Scope.ADMIN, "ops"))
    browser.click("#token-dialog .main")
    browser.click(".card .buttons button")
    browser.until(lambda: not browser.shown("#said[data-new]"), "nothing is said any more")
    _keep(browser, "dialog")
    browser.click("#cap-dialog [value=cancel]")


def _keep(browser: Browser, name: str) -> None:
    picture = browser.picture(name)
    picture.replace(IMAGES / f"page-{name}.png")


@contextmanager
def _load(folder: Path) -> Iterator[None]:
    """The demo's workers and their provider, for as long as the block runs."""
    capacity = Capacity(((0.0, 6), (HALF_S, 3), (NONE_S, 0), (AGAIN_S, 6)))
    setup = Setup(
        workload=Workload(teams=TEAMS, calls_each=2000, seed=1),
        capacity=capacity,
        settings=faster_settings(SPEEDUP),
        limit_s=600,
    )
    over = threading.Event()
    with TrialRun(setup, governed=True, folder=folder) as trial:

        def go_on() -> None:
            while not over.is_set():
                trial.step(0.2)

        stepping = threading.Thread(target=go_on)
        stepping.start()
        yield
        over.set()
        stepping.join()


def _keep_neighbours_busy(gov: Governor) -> None:
    gov.set_pool("openai", adaptive=False, cap=4, reserve=1)
    gov.set_pool("github-api", adaptive=False, cap=30)
    die(gov, "github-api", "docs/nightly-index")
    for number in range(9):
        _in_background(
            _work, gov, "openai", ("search", "mail", "tests")[number % 3], f"t-{number + 10}", 12.0
        )
        _in_background(_work, gov, "github-api", ("shop", "blog")[number % 2], f"sync-{number}", 3.0)
    for node, callers in (("crawler-1", 3), ("crawler-2", 1)):
        _in_background(_share, gov, node, callers)


def _in_background(run: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=run, args=arguments, daemon=True).start()


def _work(gov: Governor, pool: str, project: str, name: str, longest_s: float) -> None:
    chance = random.Random(name)
    model = "gpt-5" if pool == "openai" else ""
    while True:
        with gov.slot(pool, project=project, name=name, model=model):
            time.sleep(chance.uniform(longest_s / 4, longest_s))
        time.sleep(chance.uniform(0, 1))


def _share(gov: Governor, node: str, callers: int) -> None:
    with gov.share("embeddings", node=node) as share:

        def call() -> None:
            while True:
                with share.slot():
                    time.sleep(random.uniform(0.2, 1.5))

        for _ in range(callers):
            _in_background(call)
        threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
