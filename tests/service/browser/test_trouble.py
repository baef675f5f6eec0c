"""When there is nothing to show: who has to do what about it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from flyball.service.tokens import Scope
from tests.redis_server import RedisServer
from tests.service.browser.browser import Browser
from tests.service.browser.conftest import Serve
from tests.service.browser.served import Served
from tests.service.browser.world import run


@pytest.fixture(scope="module")
def guarded(one_browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that lets no client in without a token."""
    served = Served(tmp_path_factory.mktemp("guarded"), "--require-token")
    served.token(Scope.ADMIN)
    yield served.start()
    served.close()


KEPT = "return JSON.stringify([sessionStorage.length, localStorage.length, document.cookie])"


def test_a_fresh_machine_says_what_to_type_and_shows_what_comes_of_it(
    browser: Browser, server: Served
) -> None:
    browser.open(server.url)
    browser.until_text("#empty", 'flyball exec -- claude -p "fix the tests"')
    assert not browser.shown("#board")
    browser.picture("empty")
    lease = run(server.governor, "anthropic", "shop/t-1")[0]
    browser.until_text("#running", "shop/t-1")
    assert not browser.shown("#empty")
    lease.release()


def test_a_server_that_is_gone_is_said_and_found_again(browser: Browser, server: Served) -> None:
    lease = run(server.governor, "anthropic", "shop/t-2")[0]
    browser.open(server.url)
    browser.until_text("#running", "shop/t-2")
    server.stop(signal.SIGKILL)
    browser.until_text("#banner", "flyball serve running at")
    browser.until_text("#link", "trying again")
    assert "shop/t-2" in browser.text("#running"), "what was last seen stays"
    browser.picture("gone")
    server.start()
    browser.click_unless_gone("#banner-retry")
    browser.until_text("#link", "live")
    browser.until(lambda: not browser.shown("#banner"), "no banner")
    lease.release()


def test_a_server_that_ends_in_order_says_so(browser: Browser, server: Served) -> None:
    browser.open(server.url)
    browser.until_text("#link", "live")
    server.stop(signal.SIGTERM)
    browser.until_text("#banner", "state of")
    browser.until_text("#link", "trying again")


def test_a_store_that_is_gone_is_told_apart_from_a_server_that_is_gone(
    browser: Browser, serve: Serve
) -> None:
    store = RedisServer(tcp=True)
    try:
        served = serve(url=store.url)
        lease = run(served.governor, "anthropic", "shop/t-1")[0]
        browser.open(served.url)
        browser.until_text("#running", "shop/t-1")
        lease.release()
        store.kill()
        browser.until_text("#banner", "The server runs, but cannot read its state")
        browser.picture("store-gone")
        browser.reload()
        browser.until_text("#trouble", "flyball doctor")
        store.start()
        browser.click_unless_gone("#trouble-retry")
        browser.until_text("#link", "live")
    finally:
        store.close()


def test_a_token_is_asked_for_and_kept_in_the_tab_only(browser: Browser, guarded: Served) -> None:
    browser.open(guarded.url)
    browser.until_text("#trouble", "needs a token")
    browser.picture("token")
    browser.until(lambda: browser.focused.get_attribute("id") == "trouble-token", "the focus in the field")
    browser.type("#trouble-token", "flyball_wrong")
    browser.click("#trouble-form button")
    browser.until_text("#said", "not accepted")
    assert browser.run(KEPT) == '[0,0,""]'
    browser.type("#trouble-token", guarded.token(Scope.READ))
    browser.click("#trouble-form button")
    browser.until_text("#link", "live")
    assert browser.run(KEPT) == '[1,0,""]'
    browser.click("#token-button")
    browser.until_text("#trouble, #banner", "needs a token")
    assert browser.run(KEPT) == '[0,0,""]'


def test_a_token_that_is_taken_away_ends_the_page(browser: Browser, guarded: Served) -> None:
    browser.open(guarded.url)
    browser.until_text("#trouble", "needs a token")
    browser.type("#trouble-token", guarded.token(Scope.LEASE))
    browser.click("#trouble-form button")
    browser.until_text("#link", "live")
    guarded.forget(Scope.LEASE)
    browser.reload()
    browser.until_text("#trouble", "not accepted")
