"""A real Chromium without a window, driven over WebDriver: what a reader sees and does.

Nothing here sleeps. ``until`` asks the page again and again for something to be true, and says what it saw
last when it never was. The browser is the system's own (or ``FLYBALL_CHROMIUM``), with its driver beside it;
nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from selenium.common.exceptions import (
    ElementNotInteractableException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_S = 60.0
PICTURES = Path(__file__).parents[3] / "build" / "screenshots"
"""What the tests saw, to be looked at; git ignores it."""

MOMENTARY = (StaleElementReferenceException, ElementNotInteractableException)
"""What happens when the page changes while it is looked at."""

T = TypeVar("T")


def find() -> tuple[str, str] | None:
    """The browser and its driver; None where one of them is missing."""
    named = os.environ.get("FLYBALL_CHROMIUM")
    browser = named or next(filter(None, map(shutil.which, NAMES)), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One browser with one tab."""

    def __init__(self, binary: str, driver: str) -> None:
        options = ChromeOptions()
        options.binary_location = binary
        flags = [
            "--headless=new",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--disable-dev-shm-usage",
        ]
        # The sandbox refuses to run as root, which containers often do.
        for flag in [*flags, *(["--no-sandbox"] * (os.geteuid() == 0))]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self._chrome = Chrome(options=options, service=Service(driver))
        self.reset()

    def close(self) -> None:
        self._chrome.quit()

    # -- how it is set up ---------------------------------------------------------------------------

    def reset(self) -> None:
        """Back to how it was before any use."""
        self._chrome.get("about:blank")
        self._command("Storage.clearDataForOrigin", origin="*", storageTypes="all")
        self.viewport(1440, 900)
        self.media()
        self.logged()

    def viewport(self, width: int, height: int, *, phone: bool = False) -> None:
        scale = 2 if phone else 1
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )
        self._command("Emulation.setTouchEmulationEnabled", enabled=phone)

    def media(self, *, scheme: str = "light", motion: str = "no-preference") -> None:
        """What the reader's system prefers."""
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self._command("Emulation.setEmulatedMedia", features=features)

    def _command(self, name: str, **parameters: object) -> None:
        self._chrome.execute_cdp_cmd(name, parameters)

    # -- looking ------------------------------------------------------------------------------------

    def open(self, url: str) -> None:
        self._chrome.get(url)

    def reload(self) -> None:
        self._chrome.refresh()

    @property
    def title(self) -> str:
        return self._chrome.title

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page; what it returns."""
        return self._chrome.execute_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        return self._chrome.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self._chrome.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """What can be read there; empty where nothing is shown."""
        return " | ".join(element.text for element in self.all(selector) if element.is_displayed())

    def shown(self, selector: str) -> bool:
        return any(element.is_displayed() for element in self.all(selector))

    def logged(self) -> list[str]:
        """What the page complained about since the last time."""
        entries: list[dict[str, str]] = self._chrome.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]

    def until(self, seen: Callable[[], T], what: str, *, patience_s: float = PATIENCE_S) -> T:
        """Wait until something can be seen; what it was."""
        last: list[object] = [None]

        def look(_: object) -> T:
            last[0] = found = seen()
            return found

        waiting = WebDriverWait(self._chrome, patience_s, 0.05, ignored_exceptions=MOMENTARY)
        try:
            return waiting.until(look)
        except TimeoutException as error:
            self.picture("never-seen")
            raise AssertionError(f"never seen: {what}; last: {last[0]!r}; log: {self.logged()}") from error

    def until_text(self, selector: str, words: str, *, patience_s: float = PATIENCE_S) -> str:
        """Wait until words can be read somewhere."""
        self.until(lambda: words in self.text(selector), f"{words!r} in {selector}", patience_s=patience_s)
        return self.text(selector)

    def picture(self, name: str) -> Path:
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.png"
        assert self._chrome.save_screenshot(str(path))
        return path

    # -- doing --------------------------------------------------------------------------------------

    def click(self, selector: str) -> None:
        """Press the first of these that can be seen."""

        def pressed() -> bool:
            found = next((element for element in self.all(selector) if element.is_displayed()), None)
            if found is not None:
                found.click()
            return found is not None

        self.until(pressed, f"something to press at {selector}")

    def click_unless_gone(self, selector: str) -> None:
        """Press what the page may take away by itself at any moment."""
        self.run("document.querySelector(arguments[0])?.click()", selector)

    def type(self, selector: str, words: str) -> None:
        field = self.one(selector)
        field.clear()
        field.send_keys(words)

    def press(self, *keys: str) -> None:
        """Keys go to whatever has the focus, as at a keyboard."""
        self._chrome.switch_to.active_element.send_keys(*keys)

    def tab_to(self, wanted: Callable[[WebElement], bool], *, most: int = 80) -> Sequence[WebElement]:
        """Press the tab key until the focus is there; everything that had it on the way."""
        passed: list[WebElement] = []
        for _ in range(most):
            self.press(Keys.TAB)
            passed.append(self._chrome.switch_to.active_element)
            if wanted(passed[-1]):
                return passed
        raise AssertionError(f"{most} tabs, and the focus was never there")

    @property
    def focused(self) -> WebElement:
        return self._chrome.switch_to.active_element
