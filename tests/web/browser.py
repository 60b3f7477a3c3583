"""A browser without a screen that shows the web page.

The fixtures are in `page_fixtures`.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

REQUIRED = "TESTS_BROWSER"  # .ci/run sets it to `required` if it finds a browser
# Without these, the browser would need a sandbox, a GPU or the network.
_OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
_SHOWN = """() => {
    const main = document.getElementById("main");
    return main.ariaBusy === "false" && main.dataset.place === location.hash;
}"""


def _lack(needed: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"needs {needed}; {REQUIRED}=required does not allow to skip the test")
    pytest.skip(f"needs {needed}")


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        _lack(f"{module.partition('.')[0]} (pip install '.[browser]')")


@contextmanager
def browsing() -> Iterator[Browser]:
    """Yield a browser. Without playwright or chromium, skip the test, or fail it if a browser is required."""
    sync_api = _imported("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        _lack("chromium (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser: Browser = playwright.chromium.launch(executable_path=chromium, args=[*_OPTIONS])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A tab of the browser.

    Attributes:
        url: the URL of the page, with its token.
        page: the page as playwright has it.
        errors: what the page reported, and requests to other hosts. A test that expects an error removes it.
    """

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        """Make a tab for the page at a URL, with the options of `Browser.new_context`, such as `color_scheme`."""
        self.url, self._opened, self._context = url, False, browser.new_context(**options)
        self.page: Page = self._context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda message: self._report(message.type == "error", message.text))
        self.page.on("pageerror", lambda error: self._report(True, str(error)))
        self.page.on("request", lambda request: self._report(not self._is_ours(request.url), f"asked {request.url}"))

    def _report(self, is_error: bool, text: str) -> None:
        if is_error:
            self.errors.append(text)

    def _is_ours(self, url: str) -> bool:
        asked, ours = urlsplit(url), urlsplit(self.url)
        same = 3 if ours.scheme == "file" else 2  # a report is only this file
        return asked.scheme in ("data", "blob") or asked[:same] == ours[:same]

    def open(self, place: str = "overview") -> None:
        """Open a place, such as `tree?name=api/0`, and wait until the page shows it."""
        if not self._opened:
            self.page.goto(self.url)
            self._opened = True
        self.page.goto(f"{self.url.partition('#')[0]}#{place}")
        self.wait()

    def wait(self) -> None:
        """Wait until the page shows the documents of the place in its address."""
        self.page.wait_for_function(_SHOWN)

    @property
    def main(self) -> Locator:
        """The part of the page that the view fills."""
        return self.page.locator("#main")

    @property
    def place(self) -> str:
        """The place in the address."""
        return urlsplit(str(self.page.url)).fragment

    @property
    def choices(self) -> dict[str, str]:
        """The parameters of the place."""
        return dict(parse_qsl(urlsplit(f"?{self.place.partition('?')[2]}").query))

    def axe(self) -> list[str]:
        """Return the serious and critical violations of accessibility rules on the page."""
        axe = _imported("axe_playwright_python.sync_playwright").Axe()
        found = axe.run(self.page).response["violations"]
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]}"
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def screenshot(self, file: Path) -> None:
        """Write a picture of the page to a file."""
        self.page.screenshot(path=file)

    def close(self) -> None:
        """Close the tab."""
        self._context.close()
