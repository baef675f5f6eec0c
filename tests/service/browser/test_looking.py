"""What a reader sees: in light and dark, on a phone, with the keyboard, with motion reduced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.browser.browser import Browser
from tests.service.browser.served import Served
from tests.service.browser.world import NASTY, furnish

PHONE = (390, 844)
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@pytest.fixture(scope="module")
def world(one_browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all who only look."""
    served = Served(tmp_path_factory.mktemp("world"))
    held = furnish(served.governor)
    served.start()
    yield served
    for lease in held:
        lease.release()
    served.close()


@pytest.fixture
def page(browser: Browser, world: Served) -> Browser:
    """The page as it comes."""
    look(browser, world)
    return browser


@pytest.fixture
def seen(one_browser: Browser, world: Served) -> Browser:
    """The same for those who change nothing: it need not be opened again for each."""
    if not one_browser.run("return location.href === arguments[0]", world.url):
        one_browser.reset()
        look(one_browser, world)
    return one_browser


def look(browser: Browser, world: Served, where: str = "") -> None:
    browser.open(world.url + where)
    browser.until_text("#link", "live")
    browser.until_text("#running", "nightly-index")
    browser.until_text("#facts", "breaker open")


def test_a_name_is_text_wherever_it_appears(seen: Browser) -> None:
    assert seen.text("#running").count(NASTY) == 1
    assert seen.text("#waiting").count(NASTY) == 1
    assert NASTY in seen.text("#projects")
    assert seen.all("main img[src=x]") == []
    assert seen.title != "pwned"


def test_nothing_comes_from_elsewhere_and_nothing_breaks_the_policy(seen: Browser, world: Served) -> None:
    loaded = seen.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert loaded
    assert [address for address in loaded if not address.startswith(world.url)] == []
    assert seen.run("return document.cookie + localStorage.length + sessionStorage.length") == "00"
    assert seen.logged() == []


def test_a_pool_is_a_gauge_with_its_cap_and_says_why_it_is_closed(seen: Browser) -> None:
    gauges = [gauge.get_attribute("aria-valuetext") for gauge in seen.all("[role=meter]")]
    assert gauges == [
        "4 of 4 slots in use, 3 waiting",
        "3 of 30 slots in use, 0 waiting",
        "0 of 1 slots in use, 0 waiting",
    ]
    badges = [badge.text for badge in seen.all(".badge")]
    assert badges[:2] == ["full", "27 free"]
    assert badges[2].startswith("breaker open for")
    assert "a throttle at the floor" in seen.all(".card")[2].text


def test_the_tables_say_who_waits_for_what_and_what_the_dead_hold(seen: Browser) -> None:
    waiting = {row.text.split()[2]: row.text for row in seen.all("#waiting tbody tr")}
    assert "cap" in waiting["shop/t-5"]
    assert "4 of 4 in use" in waiting["shop/t-5"]
    assert "the longest is shop/t-1," in waiting["shop/t-5"]
    assert "dead, still counted" in seen.one("#running tbody tr").text
    shares = [row.text.split() for row in seen.all("#projects tbody tr")]
    assert ["anthropic", "shop", "2", "1", "1"] in shares


def test_the_charts_show_what_happened_since_the_server_runs(seen: Browser) -> None:
    def told() -> bool:
        plots = [plot.get_attribute("aria-label") or "" for plot in seen.all(".plot")]
        return len(plots) == 3 and "breaker opened 1 times" in plots[2] and "cap 4" in plots[0]

    seen.until(told, "what the charts show, in words")
    painted = """return [...document.querySelectorAll(".plot canvas")].map((canvas) => {
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(pixels.buffer)).size})"""
    assert all(colours > 10 for colours in seen.run(painted))


def test_the_page_has_its_landmarks_and_every_control_its_name(seen: Browser) -> None:
    assert [len(seen.all(tag)) for tag in ("body > header", "main", "aside", "h1")] == [1, 1, 1, 1]
    assert seen.all("[role=status]")
    nameless = [
        control.get_attribute("outerHTML")
        for control in seen.all("a, button, input, [role=meter], [role=img], [role=region], table, section")
        if control.is_displayed() and not control.accessible_name
    ]
    assert nameless == []


def test_a_script_that_is_smuggled_in_does_not_run(page: Browser) -> None:
    smuggle = """const script = document.createElement("script");
        script.append("document.title = 'pwned'");
        document.body.append(script);
        try { document.body.innerHTML = "<b>markup</b>" } catch (error) { return error.name }"""
    assert page.run(smuggle) == "TypeError"
    assert page.title != "pwned"
    assert any("has been blocked" in line for line in page.logged())


def test_one_pool_can_be_looked_at_alone(page: Browser, world: Served) -> None:
    page.click(".card h3 a")
    page.until(lambda: len(page.all(".card")) == 1, "one card")
    assert "nightly-index" not in page.text("#running")
    page.click("#only a")
    page.until(lambda: len(page.all(".card")) == 3, "all cards")


def test_the_filter_narrows_the_tables(page: Browser) -> None:
    page.type("#filter", "SYNC-2")
    page.until(lambda: len(page.all("#running tbody tr")) == 1, "one row")
    assert "1 of 7" in page.text("#running h2")


def test_on_a_phone_nothing_is_cut_off(browser: Browser, world: Served) -> None:
    browser.viewport(*PHONE, phone=True)
    look(browser, world)
    wide = """return [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
        && !one.closest(".unseen, thead, svg, .uplot") && one.getBoundingClientRect().right > innerWidth + 1)
        .map((one) => one.outerHTML.slice(0, 100))"""
    assert browser.run(wide) == []
    assert browser.run("return document.documentElement.scrollWidth") == PHONE[0]
    browser.picture("phone")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast_enough(browser: Browser, world: Served, scheme: str) -> None:
    browser.media(scheme=scheme)
    look(browser, world)
    browser.picture(f"desktop-{scheme}")
    assert browser.run(CONTRAST) == []


def test_the_switch_outweighs_the_system_and_is_remembered(browser: Browser, world: Served) -> None:
    browser.media(scheme="dark")
    look(browser, world)
    light = "return getComputedStyle(document.body).backgroundColor"
    dark = browser.run(light)
    browser.click("#theme label:nth-of-type(2)")
    browser.until(lambda: browser.run(light) != dark, "another background")
    browser.reload()
    browser.until_text("#link", "live")
    assert browser.run(light) != dark


def test_with_motion_reduced_nothing_moves(browser: Browser, world: Served) -> None:
    look(browser, world)
    moving = """const moves = ({ animationName: name, transitionDuration: time }) =>
            name !== "none" || parseFloat(time) > 0;
        return [...document.querySelectorAll("*")].filter((one) => moves(getComputedStyle(one))).length"""
    assert browser.run(moving) > 0
    browser.media(motion="reduce")
    assert browser.run(moving) == 0


def test_every_control_can_be_reached_by_keyboard_and_shows_the_focus(page: Browser) -> None:
    can_be_used = """return [...document.querySelectorAll("a[href], button, input, [tabindex='0']")]
        .filter((one) => one.checkVisibility() && !one.disabled)
        .filter((one) => one.type !== "radio" || one.checked).length"""
    shows_focus = """const one = document.activeElement;
        const seen = one.matches(".choice input") ? one.nextElementSibling : one;
        return getComputedStyle(seen).outlineStyle !== "none" || one.matches("main")"""
    reached = 0
    seen: list[bool] = []

    def back_at_the_beginning(_: object) -> bool:
        nonlocal reached
        reached += 1
        seen.append(page.run(shows_focus))
        return page.run("return document.activeElement === document.body") is True

    page.tab_to(back_at_the_beginning)
    assert reached - 1 >= page.run(can_be_used)
    assert all(seen[:-1])
