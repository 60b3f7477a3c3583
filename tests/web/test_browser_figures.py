"""Figures and names have the same text on the page as in `brickd`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

import pytest
from browser import browsing
from conftest import ROOT
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from brickd.base import escape, units

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.ci

EXAMPLES = 2_000
STATIC = ROOT / "brickd" / "web" / "static"
FORMATS: dict[str, Callable[[Any], str]] = {
    "duration": units.duration,
    "count": units.count,
    "size": units.size,
    "percent": units.percent,
    "relative": units.relative,
}
# A number of JSON has 53 bits on the page. Numbers near a unit, or between two figures, are the ones to get wrong.
_WHOLE = st.integers(-(2**53), 2**53)
_EDGE = st.builds(
    lambda digits, power, off: digits * 10**power // 2 + off,
    st.integers(1, 2000),
    st.integers(0, 12),
    st.integers(-1, 1),
)
_POWER = st.builds(lambda power, off: 2**power + off, st.integers(0, 52), st.integers(-1, 1))
_REAL = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e18, max_value=1e18)
NUMBERS = st.one_of(_WHOLE, _EDGE, _POWER, _REAL, st.floats(1e-9, 200), st.none())
TEXTS = st.text(st.characters(), max_size=8)


def examples(of: st.SearchStrategy[Any]) -> list[Any]:
    """Return examples of a strategy."""
    found = []

    @settings(max_examples=EXAMPLES, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(of)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page that has the modules of the web page."""

    def serve(route: Any) -> None:
        name = Path(route.request.url).name
        if name == "page.html":
            route.fulfill(content_type="text/html", body="<!doctype html>")
        else:
            route.fulfill(content_type="text/javascript", body=(STATIC / name).read_text())

    with browsing() as browser:
        page = browser.new_page()
        page.route("**/*", serve)
        page.goto("http://page.test/page.html")
        yield page


def test_every_figure_has_the_text_that_the_commands_print(page: Page) -> None:
    numbers = [*examples(NUMBERS), 0, -0.0, 999_499, 999_500, 99_949, 99_950, 3_050, -3_050]
    shown = page.evaluate(
        """async ([names, numbers]) => {
            const figures = await import("http://page.test/figures.js");
            return names.map((name) => numbers.map((number) => figures[name](number)));
        }""",
        [[*FORMATS], numbers],
    )
    for (name, format_), texts in zip(FORMATS.items(), shown, strict=True):
        wrong = [(n, format_(n), text) for n, text in zip(numbers, texts, strict=True) if format_(n) != text]
        assert wrong == [], name


def test_every_name_is_escaped_as_the_commands_escape_it(page: Page) -> None:
    texts = ["".join(chr(code) for code in range(first, first + 256)) for first in range(0, 0x3000, 256)]
    texts += [*examples(TEXTS), "\u202e\x1b[2J\t\n\r\x00", "\U000e0100\U0001f600", "<b>&amp;</b>"]
    # The browser and Python may know different versions of Unicode: leave out what one of them does not know.
    known = page.evaluate(
        r"""(codes) => codes.filter((code) => !/\p{Cn}/u.test(String.fromCodePoint(code)))""",
        sorted({ord(character) for text in texts for character in text if category(character) != "Cn"}),
    )
    kept = set(map(chr, known))
    texts = ["".join(character for character in text if character in kept) for text in texts]
    assert sum(map(len, texts)) > EXAMPLES
    shown = page.evaluate(
        """async (texts) => {
            const { visible } = await import("http://page.test/dom.js");
            return texts.map((codes) => visible(String.fromCodePoint(...codes)));
        }""",
        [[ord(character) for character in text] for text in texts],
    )
    assert [
        (text, escape.text(text), found) for text, found in zip(texts, shown, strict=True) if escape.text(text) != found
    ] == []
