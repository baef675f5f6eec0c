"""What the page says of a pool that has room and still starts nothing."""

from __future__ import annotations

import httpx

from flyball.core.signals import WindowReading
from flyball.governor.internals import internals
from tests.service.browser.browser import Browser
from tests.service.browser.conftest import Serve
from tests.service.browser.served import Served
from tests.service.browser.world import run, wait


def _refuse_three(served: Served) -> None:
    with httpx.Client(base_url=served.url, timeout=20) as client:
        assert client.put("/v1/orgs/acme", json={"max_concurrent_runs": 1}).status_code == 200
        answers = [client.post("/v1/orgs/acme/runs").status_code for _ in range(4)]
    assert answers == [200, 429, 429, 429]


def test_refusals_are_told_though_the_facts_about_asks_are_hidden(browser: Browser, serve: Serve) -> None:
    served = serve()
    browser.open(served.url)
    browser.until_text("#empty", "No pool")
    _refuse_three(served)
    browser.until_text("#facts-none", "3 refusals")
    assert browser.text("#asks-too-words") == "asks too (3 refused)"
    browser.picture("standing-refused")
    browser.click("#asks-too-words")
    browser.until_text("#facts", "'acme' is at its maximum of 1")
    browser.reset()
    browser.open(served.url)
    browser.until_text("#facts-none", "3 refusals")


def test_a_pool_where_nothing_was_refused_says_so(browser: Browser, serve: Serve) -> None:
    served = serve()
    served.governor.set_pool("calm", adaptive=False, cap=3)
    browser.open(served.url)
    browser.until_text("#facts-none", "no ask was refused")
    assert browser.text("#asks-too-words") == "asks too"


def test_a_card_names_the_projects_at_their_maximum(browser: Browser, serve: Serve) -> None:
    served = serve()
    _refuse_three(served)
    browser.open(served.url)
    browser.until_text(".card .why", "at the maximum: acme")


def test_a_pool_whose_starts_are_spaced_says_when_the_next_one_is(browser: Browser, serve: Serve) -> None:
    served = serve()
    served.governor.set_pool("openai", controller="koryph", cap=8, spacing_s=600.0, spacing_jitter=0.0)
    held = run(served.governor, "openai", "shop/t-1")
    wait(served.governor, "openai", "shop/t-2", "blog/t-3")
    browser.open(served.url)
    browser.until_text(".badge", "next start in 10 min")
    assert browser.all(".card")[0].get_attribute("data-is") == "spaced"
    words = browser.text(".card .why")
    assert "7 free, but starts are spaced" in words
    assert "600 s between starts, next in 10 min" in words
    browser.picture("standing-spaced")
    held[0].release()


def test_a_card_says_how_full_the_windows_of_the_account_are(browser: Browser, serve: Serve) -> None:
    served = serve()
    served.governor.set_pool("anthropic", cap=3, usage_drain=0.9)
    reading = WindowReading("5h", 0.92, 4200.0, "default:claude")
    internals(served.governor).windows.tell("anthropic", [reading])
    browser.open(served.url)
    browser.until_text(".card .windows", "default:claude: 92 % of 5h used, resets in 70 min (reported")
    browser.until_text(".badge", "closed for 70 min")
    assert "5h window 92 % used (reported)" in browser.text(".card .why")
    browser.picture("standing-account")
