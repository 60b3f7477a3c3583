"""The links of the README and of the pages under docs/.

Owns: the syntax of links and anchors, and the check for broken links. Must not know: mkdocs. Invariants: text in code
is not a link; an anchor is the same on GitHub and on the site.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from documentation.cli_page import PAGE, filled

_CODE = re.compile(r"^(```+|~~~+).*?^\1`*$|(`+)(?!`).+?(?<!`)\2(?!`)|<!--.*?-->", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_FENCE = re.compile(r"^(```+|~~~+).*?^\1`*$", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def pages(root: Path) -> list[Path]:
    """Return every page whose links are checked."""
    return sorted([*root.glob("*.md"), *root.glob("agent/*.md"), *root.glob("docs/**/*.md")])


def read(path: Path) -> str:
    """Return a page as its readers see it, with generated parts."""
    text = path.read_text()
    return filled(text) if path.as_posix().endswith(f"docs/{PAGE}") else text


def links(text: str) -> Iterator[re.Match[str]]:
    """Return the links outside of code: group 1 is the text, group 2 is the target."""
    blank = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for found in _LINK.finditer(blank):
        original = _LINK.match(text, found.start())
        if original is not None:
            yield original


def anchors(text: str) -> list[str]:
    """Return the anchors of a page's headings.

    >>> anchors("# A `b_c` [d](e.md), f\\n```\\n# no\\n```\\n## G")
    ['a-b_c-d-f', 'g']
    """
    headings = _HEADING.findall(_FENCE.sub("", text))
    return [_slug(_LINK.sub(r"\1", heading)) for heading in headings]


def broken(root: Path) -> list[str]:
    """Return each broken link and each duplicate anchor of a page, as 'page: what is wrong'."""
    found = []
    for path in pages(root):
        text, name = read(path), path.relative_to(root)
        found += [f"{name}: two headings have the anchor #{each}" for each in _twice(anchors(text))]
        for link in links(text):
            if not _ELSEWHERE.match(link[2]) and (reason := _wrong(path, link[2])):
                found.append(f"{name}: {link[2]}: {reason}")
    return found


def _twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _wrong(page: Path, target: str) -> str | None:
    file, _, anchor = target.partition("#")
    if file.startswith("/"):
        return "the link is not relative"
    path = page.parent / file if file else page
    if not path.exists():
        return "there is no such file"
    if anchor and anchor not in anchors(read(path.resolve())):
        return "there is no such heading"
    return None


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
