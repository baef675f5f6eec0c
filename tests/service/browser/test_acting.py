"""What an admin may do: never offered without a token of that scope, never done without being confirmed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from flyball.governor.internals import internals
from flyball.service.tokens import Scope
from tests.service.browser.browser import Browser
from tests.service.browser.served import Served
from tests.service.browser.world import close_for_long, die, run


@pytest.fixture(scope="module")
def tokens(server: Served) -> dict[Scope, str]:
    return {scope: server.token(scope) for scope in (Scope.READ, Scope.ADMIN)}


@pytest.fixture(autouse=True)
def pools(server: Served) -> Iterator[None]:
    """One of each kind to act upon; the cap of four is known before each test."""
    server.governor.set_pool("anthropic", adaptive=False, cap=4)
    held = run(server.governor, "anthropic", "shop/t-1")
    yield
    for lease in held:
        lease.release()


def enter(browser: Browser, server: Served, token: str) -> None:
    browser.open(server.url)
    browser.until_text("#running", "shop/t-1")
    browser.click("#token-button")
    browser.type("#token-field", token)
    browser.press(Keys.ENTER)
    browser.until_text("#token-button", "Forget")
    browser.until_text("#link", "live")


def cap(server: Served) -> int:
    return next(pool.cap for pool in server.governor.status().pools if pool.name == "anthropic")


ACTIONS = ".card .buttons button, #running td.action button"


def test_nothing_can_be_done_without_a_token(browser: Browser, server: Served) -> None:
    die(server.governor, "anthropic", "docs/zombie")
    browser.open(server.url)
    browser.until_text("#running", "dead, still counted")
    assert not browser.shown(ACTIONS)


def test_nothing_can_be_done_with_a_token_that_may_only_read(
    browser: Browser, server: Served, tokens: dict[Scope, str]
) -> None:
    enter(browser, server, tokens[Scope.READ])
    browser.until_text("#token-button", "test-read")
    assert not browser.shown(ACTIONS)


def test_what_is_not_confirmed_is_not_done(
    browser: Browser, server: Served, tokens: dict[Scope, str]
) -> None:
    enter(browser, server, tokens[Scope.ADMIN])
    browser.click(".card .buttons button")
    browser.type("#cap-field", "2")
    browser.press(Keys.ESCAPE)
    browser.until(lambda: not browser.shown("#cap-dialog"), "no dialog")
    browser.click(".card .buttons button")
    browser.click("#cap-dialog [value=cancel]")
    assert cap(server) == 4


def test_what_the_server_refuses_is_said_where_it_was_asked(
    browser: Browser, server: Served, tokens: dict[Scope, str]
) -> None:
    enter(browser, server, tokens[Scope.ADMIN])
    browser.click(".card .buttons button")
    browser.type("#cap-field", "99999999999")
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.text("#cap-dialog .wrong") != "", "why not")
    assert browser.shown("#cap-dialog")
    assert cap(server) == 4


def test_a_cap_is_set_with_nothing_but_the_keyboard(
    browser: Browser, server: Served, tokens: dict[Scope, str]
) -> None:
    browser.open(server.url)
    browser.until_text("#running", "shop/t-1")
    browser.tab_to(lambda one: one.get_attribute("id") == "token-button")
    browser.press(Keys.ENTER)
    browser.press(tokens[Scope.ADMIN], Keys.ENTER)
    browser.until(lambda: browser.shown(ACTIONS), "actions")
    browser.tab_to(lambda one: one.text == "Set cap…")
    browser.press(Keys.SPACE)
    browser.until(lambda: browser.shown("#cap-dialog"), "the dialog")
    browser.picture("action-dialog")
    browser.press("7", Keys.ENTER)
    browser.until_text("#said", "The cap of anthropic is set to 7.")
    assert cap(server) == 7
    browser.until_text(".card", "of 7")
    assert browser.focused.text == "Set cap…", "the focus is back where it was"


def test_what_a_dead_process_holds_is_released(
    browser: Browser, server: Served, tokens: dict[Scope, str]
) -> None:
    lease_id = die(server.governor, "anthropic", "docs/zombie-2")
    enter(browser, server, tokens[Scope.ADMIN])
    browser.until_text("#running", "docs/zombie-2")
    browser.click("#running button[aria-label*='docs/zombie-2']")
    assert "is dead" in browser.text("#release-words")
    browser.click("#release-dialog .main")
    browser.until(lambda: "zombie-2" not in browser.text("#running"), "no zombie")
    assert internals(server.governor).store.claim(lease_id) is None
    assert not browser.shown("#running button[aria-label*='shop/t-1']"), "what runs is not offered"


def test_a_breaker_is_closed(browser: Browser, server: Served, tokens: dict[Scope, str]) -> None:
    close_for_long(server.governor, "openai")
    enter(browser, server, tokens[Scope.ADMIN])
    browser.until_text(".badge", "breaker open")
    browser.click(".card[data-is=open] .buttons button")
    assert "forgets what it learned" in browser.text("#reset-words")
    browser.click("#reset-dialog .main")
    browser.until_text(".card:last-child .badge", "1 free")
    status = server.governor.status()
    assert [pool.breaker for pool in status.pools if pool.name == "openai"] == ["closed"]
