"""A real browser, and the server of `lrurun ui`, for tests.

It needs Playwright's package and an installed Chromium (Debian: chromium). Without them tests are skipped; with
LRURUN_CI set, they fail.

    python -m tests.docs.browser FOLDER    takes the pictures of the documentation, where `lrurun ladder npDigits` has
                                           run
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.machine import STARTED, Machine

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
IMAGES = Path(__file__).parents[2] / "docs" / "images"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def program() -> str:
    """The path of Chromium. Skips the test, or fails it in CI, if it or Playwright is missing."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        import playwright.sync_api  # noqa: F401
    except ModuleNotFoundError:
        found = None
    if found is None:
        missing = "Playwright's package or Chromium is not installed (pip install playwright; apt-get install chromium)"
        (pytest.fail if os.environ.get("LRURUN_CI") else pytest.skip)(missing)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser that the tests of a module share."""
    path = program()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] * (os.geteuid() == 0))
        yield browser
        browser.close()


class Watched:
    """A page, and what must not happen on it: errors, dialogs, requests to other hosts."""

    def __init__(self, browser: Any, link: str, *, width: int = 1280, dark: bool = False) -> None:
        self.base = link.partition("/?")[0]
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self.width = width
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.faults: list[str] = []
        self.page.on(
            "console", lambda said: self.faults.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        self.page.on("request", self._requested)
        self.page.goto(link)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "file:")):
            self.faults.append(f"request to {request.url}")

    def open(self, address: str) -> None:
        """Go to an address of the server, or to a file, and wait for its curves."""
        self.page.goto(address if address.startswith("file:") else self.base + address)
        self.wait_for("[...document.querySelectorAll('.charts')].every(one => one.querySelector('.tools'))")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true. It is asked from here: `wait_for_function` of Playwright asks
        in the page, whose policy forbids eval."""
        end = time.monotonic() + 60
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"not so within 60 s: {condition}"
            self.page.wait_for_timeout(50)

    def resize(self, width: int, scheme: str) -> None:
        """Another width of the window, and the "light" or "dark" colours."""
        self.width = width
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)
        self.page.wait_for_timeout(200)  # curves are drawn again

    def check(self, *, axe: bool = True) -> None:
        """No fault so far, nothing wider than the window, and axe finds no violation."""
        assert self.faults == []
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width, (self.page.url, self.width)
        if not axe:
            return
        self.page.evaluate(f"{AXE}\n;0")  # of the test, which the policy of the page does not concern
        found = self.page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)["violations"]
        shown = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
        assert not shown, (self.page.url, shown)


@contextlib.contextmanager
def served(machine: Machine, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The link of `lrurun ui`, and its process, which is stopped at the end."""
    process = machine.start("ui", "--port", str(port))
    STARTED.remove(process)  # it may serve several tests
    assert process.stdout is not None
    link = process.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", link), process.communicate(timeout=10)
    try:
        yield link, process
    finally:
        with process:  # closes its pipes
            process.kill()


def take_pictures(folder: Path) -> None:
    """The pictures of the page of a ladder that the documentation shows: its beginning, and from its curves on."""
    from playwright.sync_api import sync_playwright

    machine = Machine(folder)
    [instance] = [one["instance"] for one in machine.json("status")["ladders"] if one["name"] == "npDigits"]
    with served(machine) as (link, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"] * (os.geteuid() == 0))
        view = Watched(browser, link)
        view.page.set_viewport_size({"width": 1280, "height": 860})
        view.open(f"/ladders/{instance}")
        view.page.locator("#connection", has_text="Live").wait_for()
        view.page.locator(".chart canvas").first.wait_for()
        for name, top in (("ui-ladder", "header"), ("ui-curves", ".charts")):
            view.page.locator(top).first.evaluate("part => part.scrollIntoView()")
            view.page.wait_for_timeout(500)
            view.page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]))
