"""A browser for all tests of the page, and servers for it to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.browser.browser import Browser, find
from tests.service.browser.served import Served

NO_BROWSER = "no Chromium: the web page was not tested. `make tools` as root, or name it in FLYBALL_CHROMIUM"

Serve = Callable[..., Served]


@pytest.fixture(scope="session")
def one_browser() -> Iterator[Browser]:
    """Starting it takes a second; every test gets it as if it had not been used."""
    found = find()
    if found is None:
        pytest.skip(NO_BROWSER)
    browser = Browser(*found)
    yield browser
    browser.close()


@pytest.fixture
def browser(one_browser: Browser) -> Browser:
    one_browser.reset()
    return one_browser


@pytest.fixture(scope="module")
def server(one_browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a module, without leases; started when it is first asked for."""
    served = Served(tmp_path_factory.mktemp("served")).start()
    yield served
    served.close()


@pytest.fixture
def serve(one_browser: Browser, tmp_path: Path) -> Iterator[Serve]:
    """Starts servers over one home, and ends them."""
    started: list[Served] = []

    def start(*options: str, url: str = "") -> Served:
        started.append(Served(tmp_path, *options, url=url))
        return started[-1].start()

    yield start
    for served in started:
        served.close()
