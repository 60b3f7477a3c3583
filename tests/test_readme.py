"""The README's reference says what there is: every verb, option and variable, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from conftest import ROOT

from brickd.cli import VERBS
from brickd.cli import brickd as group
from brickd.cli.asking import Read

README = (ROOT / "README.md").read_text()

# These print no document, so there is nothing to choose a format for.
NO_DOCUMENT = {
    "run": "it ends as another program",
    "demo": "it shows the screens of other verbs",
    "completion": "it prints a program for a shell",
}
COMMON = {"-o", "--output", "--json", "-h", "--help"}

_CODE = re.compile(r"`([^`]+)`")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def commands() -> dict[str, click.Command]:
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in VERBS}
    return {name: command for name, command in found.items() if command is not None}


def section(text: str, title: str) -> str:
    """What stands below a heading, up to the next of its rank."""
    _, _, rest = text.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of a table's rows."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def reference(text: str) -> dict[str, str]:
    """The rows of each verb in the operator's table."""
    found: dict[str, str] = {}
    for first, *rest in rows(section(text, "For the operator")):
        if named := re.match(r"`brickd ([a-z]+)", first):
            found[named[1]] = " ".join([found.get(named[1], ""), first, *rest])
    return found


def words(parameter: click.Parameter) -> list[set[str]]:
    """What a reference must say of a parameter: of each set at least one word."""
    wanted: list[set[str]] = []
    option = isinstance(parameter, click.Option)
    if option:
        wanted.append(set(parameter.opts))
    if isinstance(parameter.type, click.Choice):
        wanted += [{str(choice)} for choice in parameter.type.choices]
    elif isinstance(parameter.type, Read) or not option:
        unsaid = (parameter.type.name if option else str(parameter.name)).upper()
        wanted += [{word} for word in re.findall(r"[A-Z]+", parameter.metavar or unsaid)]
    return wanted


def missing(text: str) -> list[str]:
    """What there is and the reference does not say."""
    table = reference(text)
    said = {verb: set(re.findall(r"-*\w[\w-]*", row)) for verb, row in table.items()}
    return [f"brickd {verb}" for verb in VERBS if verb not in table] + [
        f"brickd {verb}: {' or '.join(sorted(wanted))}"
        for verb, command in commands().items()
        if verb in said
        for parameter in command.params
        if not COMMON & set(parameter.opts)
        for wanted in words(parameter)
        if not wanted & said[verb]
    ]


def unknown(text: str) -> list[str]:
    """What the README says and there is not: verbs anywhere, options in commands and in the verb's row."""
    options = {
        verb: COMMON.union(*(parameter.opts for parameter in command.params)) for verb, command in commands().items()
    }
    lines = [span for span in _CODE.findall(_BLOCK.sub("", text)) if span.startswith("brickd ")]
    lines += [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ brickd ")]
    said = [(found[1], line) for line in lines if (found := re.match(r"brickd ([a-z]+)", line))]
    said += [(verb, " ".join(_CODE.findall(row))) for verb, row in reference(text).items()]
    strange = [f"brickd {verb}" for verb, _ in said if verb not in VERBS]
    strange += [
        f"brickd {verb} {option}"
        for verb, line in said
        for option in _OPTION.findall(line.partition("#")[0].partition(" -- ")[0])
        if option not in options.get(verb, {option})
    ]
    return list(dict.fromkeys(strange))


def test_the_reference_names_every_verb_option_and_choice() -> None:
    assert missing(README) == []


def test_the_readme_names_no_verb_and_no_option_that_does_not_exist() -> None:
    assert unknown(README) == []


@pytest.mark.parametrize(
    ("cut", "told"),
    [
        ("| `brickd doctor`", "brickd doctor"),
        ("--dry-run", "brickd prune: --dry-run"),
        ("-n N", "brickd inspect: --records or -n"),
        ("SERVICE", "brickd status: SERVICE"),
        (r"\|fish", "brickd completion: fish"),
        ("`p90`, ", "brickd bricks: p90"),
        (r"\|layer", "brickd bricks: layer"),
    ],
)
def test_what_is_cut_from_the_reference_is_missed(cut: str, told: str) -> None:
    assert cut in README
    assert told in missing(README.replace(cut, ""))


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ("\nSee `brickd frobnicate`.\n", ["brickd frobnicate"]),
        ("\n```console\n$ brickd stat --json\n```\n", ["brickd stat"]),
        ("\n`brickd prune --really` does.\n", ["brickd prune --really"]),
        ("\n```console\n$ brickd status -x   # --not an option\n```\n", ["brickd status -x"]),
    ],
)
def test_what_is_added_to_the_readme_and_does_not_exist_is_found(added: str, told: list[str]) -> None:
    assert unknown(README + added) == told


def test_an_option_that_does_not_exist_is_found_in_a_verbs_row() -> None:
    assert unknown(README.replace("`--refused`:", "`--rejected`:")) == ["brickd prune --rejected"]


def test_every_verb_with_a_document_prints_it_in_every_format() -> None:
    for verb, command in commands().items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert (verb in NO_DOCUMENT) == (not {"-o", "--output", "--json"} <= options), verb
    (sentence,) = re.findall(r"^Every verb but .*?\.", README, re.MULTILINE | re.DOTALL)
    spans = _CODE.findall(sentence)
    assert [span for span in spans if span in VERBS] == list(NO_DOCUMENT)
    (output,) = [parameter for parameter in commands()["status"].params if "--output" in parameter.opts]
    assert isinstance(output.type, click.Choice)
    assert f"-o {'|'.join(map(str, output.type.choices))}" in spans
    assert "--json" in spans


def variables_read() -> set[str]:
    """Every variable that the agent or brickd name as a whole in their sources."""
    files = (
        path for folder in ("agent", "brickd") for path in (ROOT / folder).rglob("*.*") if "build" not in path.parts
    )
    texts = [path.read_text() for path in files if path.suffix in (".c", ".h", ".py")]
    return {name for text in texts for name in re.findall(r'"(BRICKD(?:_[A-Z]+)*)"', text)}


def test_the_table_of_variables_names_what_is_read_and_nothing_else() -> None:
    named = {
        span for first, *_ in rows(section(README, "In a server")) for span in _CODE.findall(first) if "BRICKD" in span
    }
    assert named == variables_read()


def test_the_recipes_for_containers_agree_with_themselves() -> None:
    _, _, text = README.partition("\n### In a container\n")
    kinds = dict(re.findall(r"^```(\w+)\n(.*?)^```$", text.partition("\n## ")[0], re.MULTILINE | re.DOTALL))
    image, docker, pod = kinds["dockerfile"], kinds["console"], kinds["yaml"]
    groups = re.findall(r"(?:--group-add |BRICKD_GROUP=|fsGroup: |BRICKD_GROUP, value: \")(\d+)", docker + pod)
    assert len(groups) == 5
    assert len(set(groups)) == 1
    users = re.findall(r"(?:--user |runAsUser: )(\d+)", docker + pod)
    assert users[:2] == users[2:]
    assert f"-o {users[1]} " in image
    assert docker.count("/run/brickd") == 1
    assert image.count("/run/brickd") == 2
    assert pod.count("mountPath: /dev/shm") == 2
