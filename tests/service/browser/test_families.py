"""Whose a lease is: subagents under their session, and an agent's calls with the agent."""

from __future__ import annotations

from tests.service.browser.browser import Browser
from tests.service.browser.served import Served
from tests.service.browser.world import run, wait

CHILD = "shop/claude-1 > subagent Explore"


def test_subagents_stand_under_their_session(browser: Browser, server: Served) -> None:
    server.governor.set_pool("anthropic", adaptive=False, cap=4)
    leases = run(server.governor, "anthropic", "shop/claude-1", "shop/t-2", CHILD, "blog/claude-1")
    browser.open(server.url)
    browser.until_text("#running", "subagent Explore")
    names = [cell.text for cell in browser.all("#running tbody td.who")]
    assert names == ["shop/claude-1", "> subagent Explore", "shop/t-2", "blog/claude-1"]
    assert [cell.text for cell in browser.all("#running [data-below]")] == ["> subagent Explore"]
    leases[0].release()
    browser.until_text("#running", CHILD)
    for lease in leases[1:]:
        lease.release()


def test_an_agent_says_what_its_calls_do(browser: Browser, server: Served) -> None:
    server.governor.set_pool("agents", adaptive=False, cap=4)
    server.governor.set_pool("anthropic", adaptive=False, cap=2)
    leases = run(server.governor, "agents", "shop/claude-1", "shop/t-2")
    leases += run(server.governor, "anthropic", "shop/claude-1", "shop/claude-1")
    wait(server.governor, "anthropic", "shop/claude-1")
    browser.open(server.url)
    browser.until_text("#running", "2 calls in anthropic, 1 waiting")
    browser.until_text("#running", "no call now")
    for lease in leases:
        lease.release()
