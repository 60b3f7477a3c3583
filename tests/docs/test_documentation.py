"""The documentation: no link is broken, and the reference of the commands and the manual pages are made from the
commands.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from documentation import cli_page, hooks, links, manual, site
from documentation import commands as commands_module
from documentation.commands import commands

from brickd.query.verbs import VERBS

NAVIGATION = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


def wrong(folder: Path, text: str) -> list[str]:
    """Return the errors in the links of a README with this text; docs/a.md exists and has one heading."""
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "a.md").write_text("# One `thing`, two\n")
    (folder / "README.md").write_text(text)
    return links.broken(folder)


@pytest.mark.ci
def test_every_link_of_the_documentation_has_a_target() -> None:
    assert links.broken(ROOT) == []


def test_the_navigation_has_every_page_once() -> None:
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")]
    assert sorted(NAVIGATION) == sorted(pages)


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/a.md) [a](docs/a.md#one-thing-two) [up](#up) [web](https://example.org/x)\n# Up\n",
        "`[code](none.md)` ``[a ` b](none.md)``\n```console\n$ [a](none.md)\n```\n",
        "<!-- [later](none.md) -->\n",
    ],
)
def test_valid_links_and_links_inside_code_pass(tmp_path: Path, text: str) -> None:
    assert wrong(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a](docs/b.md)", "README.md: docs/b.md: there is no such file"),
        ("![a picture](docs/b.svg)", "README.md: docs/b.svg: there is no such file"),
        ("[`a`](docs/a.md#one)", "README.md: docs/a.md#one: there is no such heading"),
        ("[a](#here)\n```\n# Here\n```\n", "README.md: #here: there is no such heading"),
        ("[a](/docs/a.md)", "README.md: /docs/a.md: the link is not relative"),
        ("# Two\n## `Two`\n", "README.md: two headings have the anchor #two"),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, text: str, reason: str) -> None:
    assert wrong(tmp_path, text) == [reason]


def test_the_site_has_no_link_to_a_file_outside_of_docs() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="a.md", abs_src_path=str(ROOT / "docs" / "a.md")))
    text = "[the header](../agent/README.md#a) and [security](security.md) `[x](../README.md)`"
    filled = hooks.on_page_markdown(text, page, {"docs_dir": str(ROOT / "docs")})
    assert filled == "the header and [security](security.md) `[x](../README.md)`"


def test_an_escaped_pipe_in_a_table_is_a_pipe_on_the_site() -> None:
    assert hooks.on_page_content(r"<td><code>a\|b</code></td> \|") == r"<td><code>a|b</code></td> \|"


def test_the_reference_of_commands_has_a_heading_for_each_verb() -> None:
    page = links.read(ROOT / "docs" / cli_page.PAGE)
    assert cli_page.MARKER not in page
    assert [f"brickd-{verb}" for verb in VERBS] == [each for each in links.anchors(page) if each.startswith("brickd-")]
    assert "| `--rtol ERROR` |" in page


@pytest.mark.slow
@pytest.mark.parametrize(("added", "whole"), [("", True), ("\n[x](reference/json.md#nowhere)\n", False)])
def test_a_warning_of_mkdocs_fails_the_build(tmp_path: Path, added: str, whole: bool) -> None:
    if any(importlib.util.find_spec(module) is None for module in ("mkdocs", "material")):
        pytest.skip("no mkdocs here: scripts/docs installs it")
    for each in ROOT.iterdir():
        if each.name not in ("docs", "mkdocs.yml", "site"):
            (tmp_path / each.name).symlink_to(each)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs" / "index.md").open("a") as index:
        index.write(added)
    assert site.build(tmp_path) is whole


def test_brickd_and_each_verb_have_a_manual_page(tmp_path: Path) -> None:
    written = manual.write(tmp_path / "man1", "1.2")
    assert [path.name for path in written] == ["brickd.1", *(f"brickd-{verb}.1" for verb in VERBS)]
    page = (tmp_path / "man1" / "brickd-diff.1").read_text()
    assert [f".SH {each}" in page for each in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO")] == [True] * 5
    assert r"\fB\-\-rtol ERROR\fR" in page


@pytest.mark.ci
def test_groff_formats_each_manual_page_without_a_warning(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff here")
    command = ["groff", "-man", "-Tutf8", "-ww", *(str(page) for page in manual.write(tmp_path, "1.2"))]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr == ""


def test_a_line_that_looks_like_a_roff_request_is_text() -> None:
    assert manual._text(".so /etc/passwd") == r"\&.so /etc/passwd"
    assert manual._text("'x") == r"\&'x"


def test_each_help_text_begins_with_one_short_sentence() -> None:
    for command in commands():
        assert command.paragraphs[0].text.endswith("."), command.name
        assert len(command.summary) <= 75, command.name


def test_each_option_has_a_help_text() -> None:
    assert [(command.name, names) for command in commands() for names, text in command.options if not text] == []


def test_the_list_of_verbs_shows_the_first_sentence_of_each_help_text() -> None:
    reported = {command.name.removeprefix("brickd "): command.summary for command in commands()}
    assert {name: f"{reported[name]}." for name in VERBS} == {name: verb.help for name, verb in VERBS.items()}


def test_the_doctests_of_the_page_builder_pass() -> None:
    assert sum(doctest.testmod(module).attempted for module in (commands_module, hooks, links, manual)) >= 4
    assert [doctest.testmod(module).failed for module in (commands_module, hooks, links, manual)] == [0] * 4
