"""What happens while a page is open is seen without being asked for, however much it is."""

from __future__ import annotations

from functools import partial

from tests.service.browser.browser import Browser
from tests.service.browser.served import Served
from tests.service.browser.world import close_for_long, refuse, run, trip, wait

SMOOTH_MS = 100.0
"""Painting everything anew may take this long on a machine that does other things, too."""
COUNTING = """window.paints = [];
    const keep = (list) => window.paints.push(...list.getEntriesByName("paint").map((one) => one.duration));
    new PerformanceObserver(keep).observe({ entryTypes: ["measure"] })"""
COUNT = "return document.querySelectorAll(arguments[0]).length"


def test_a_lease_comes_and_goes_while_one_watches(browser: Browser, server: Served) -> None:
    server.governor.set_pool("anthropic", adaptive=False, cap=2)
    browser.open(server.url)
    browser.until_text(".card", "2 free")
    first, second = run(server.governor, "anthropic", "shop/t-1", "shop/t-2")
    browser.until_text("#running", "shop/t-2")
    wait(server.governor, "anthropic", "blog/t-3")
    browser.until_text("#waiting", "blog/t-3")
    browser.until(lambda: browser.title == "1 waiting · flyball", "the title")
    first.release()
    browser.until_text("#running", "blog/t-3")
    browser.until_text("#waiting", "Nothing waits")
    assert "shop/t-1" not in browser.text("#running")
    second.release()


def test_ages_go_on_by_themselves(browser: Browser, server: Served) -> None:
    lease = run(server.governor, "anthropic", "shop/t-1")[0]
    browser.open(server.url)
    browser.until_text("#running td.age", "0:0")
    before = browser.text("#running td.age")
    browser.until(lambda: browser.text("#running td.age") != before, "another age")
    lease.release()


def test_a_breaker_that_opens_is_seen_and_said(browser: Browser, server: Served) -> None:
    close_for_long(server.governor, "openai")
    server.governor.reset_pool("openai")
    browser.open(server.url)
    browser.until_text(".badge", "1 free")
    trip(server.governor, "openai")
    browser.until_text(".badge", "breaker open for 10 min")
    browser.until_text("#said", "openai: breaker open")
    browser.until_text("#facts li:first-child", "a throttle at the floor")
    browser.until(lambda: browser.title == "openai open · flyball", "the title")


def test_the_timeline_tells_moves_first_and_asks_on_demand(browser: Browser, server: Served) -> None:
    server.governor.set_pool("google", controller="koryph")
    lease = run(server.governor, "google", "shop/t-9")[0]
    browser.open(server.url)
    browser.until_text("#running", "shop/t-9")
    lease.report(429)
    browser.until_text("#facts", "cap 8 -> 4")
    lease.release("failed", words="exit status 1")
    browser.until(lambda: "shop/t-9" not in browser.text("#running"), "no lease")
    assert "exit status 1" not in browser.text("#facts")
    browser.click(".check")
    browser.until_text("#facts", "exit status 1")


def test_200_leases_and_1000_facts_do_not_make_it_slow(browser: Browser, server: Served) -> None:
    gov = server.governor
    gov.set_pool("large", adaptive=False, cap=200)
    held = run(gov, "large", *(f"project-{n % 9}/task-{n}" for n in range(200)))
    wait(gov, "large", *(f"project-{n % 9}/waiter-{n}" for n in range(150)))
    refuse(gov, "large", 500)
    browser.open(f"{server.url}#pool=large")
    browser.until_text("#running h2", "200")
    for control in ("#running .more", "#waiting .more", ".check"):
        browser.click(control)
    # The server remembers 500; a page that stays open remembers more.
    for least in (700, 900, 1000):
        refuse(gov, "large", 200)
        browser.until(partial(_shows_facts, browser, least), f"{least} facts")
    browser.run(COUNTING)
    browser.until(lambda: len(browser.run("return window.paints")) >= 5, "some paints")
    browser.picture("busy")
    rows = ["#running tbody tr", "#waiting tbody tr", "#facts li"]
    assert [browser.run(COUNT, selector) for selector in rows] == [200, 150, 1000]
    # The quickest: another process may have had the core during the others.
    assert min(browser.run("return window.paints")) < SMOOTH_MS
    for lease in held:
        lease.release()


def _shows_facts(browser: Browser, least: int) -> bool:
    browser.run("document.querySelector('#facts-more:not([hidden])')?.click()")
    return int(browser.run(COUNT, "#facts li")) >= least
