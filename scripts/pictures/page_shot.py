"""The picture of the web page: a real browser next to the demonstration.

Owns: the size of the picture, the view that it shows. Must not know: terminals. Invariant: the page shows all problems
of the demonstration.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = "page.png"

_SIZE = {"width": 1000, "height": 640}
_VIEW = "workers"
_PROBLEMS = "3 problems"
_PATIENCE_MS = 240_000  # a straggler is found after five looks, ten seconds apart, and later on a busy machine
_SHOWN = """([view, problems]) => {
    const main = document.getElementById("main");
    return document.getElementById("line").textContent === problems
        && main.ariaBusy === "false" && main.dataset.place === `#${view}`;
}"""


def lacking() -> str | None:
    """Return what this machine lacks for the picture, with its command; None if it lacks nothing."""
    if shutil.which("chromium") is None:
        return "chromium is not installed: apt install chromium"
    try:
        import playwright.sync_api  # noqa: F401
    except ModuleNotFoundError:
        return "playwright is not installed: .venv/bin/pip install '.[browser]'"
    return None


def made(folder: Path) -> str:
    """Make the picture in the folder, next to a demonstration that runs. Return the text of the page."""
    from playwright.sync_api import sync_playwright

    with _served() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=_SIZE, color_scheme="light")
        page.goto(url)
        page.evaluate("(view) => { location.hash = view; }", _VIEW)
        page.wait_for_function(_SHOWN, arg=[_VIEW, _PROBLEMS], timeout=_PATIENCE_MS)
        draft = folder / f"{FILE}.draft.png"
        page.screenshot(path=draft)
        text = page.locator("body").inner_text()
        browser.close()
    os.replace(draft, folder / FILE)
    return str(text)


@contextmanager
def _served() -> Iterator[str]:
    """Serve the page, and yield its URL with the token."""
    command = [sys.executable, "-P", "-m", "brickd", "web", "--http", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(b"".join(iter(process.stdout.readline, b"}\n")) + b"}")["page_url"]
        finally:
            process.terminate()
