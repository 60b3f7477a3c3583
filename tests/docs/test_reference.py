"""The reference is complete: verbs, options, variables, paths, documents, codes, names.

Each list is taken from the code and compared with the pages under docs/reference, in both directions.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import brick_agent
import click
import pytest
from conftest import ROOT
from documentation import links
from documentation.commands import commands as help_texts
from faults import Start
from serving import Daemon, ask
from verbs import SPANS, brickd, started

from brickd import divergence, errors
from brickd.api import error_responses
from brickd.base.paths import runtime
from brickd.cli import brickd as group
from brickd.errors import BrickdError, Exit
from brickd.query.verbs import VERBS
from brickd.screens import health
from brickd.shm import segment_files
from brickd.state import checkpoint

REFERENCE = ROOT / "docs" / "reference"
# These verbs print no document, so they have no output format.
NO_DOCUMENT = {
    "top": "it is a screen, or prints screens",
    "report": "it writes a page, or Markdown",
    "export": "it writes a file for other tools",
    "run": "it ends as another program",
    "demo": "it shows the screens of other verbs",
    "completion": "it prints a program for a shell",
    "help": "it prints texts for a person",
}

_CODE = re.compile(r"`([^`]+)`")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


@functools.cache
def page(name: str) -> str:
    return links.read(REFERENCE / f"{name}.md")


@functools.cache
def section(text: str, title: str) -> str:
    """Return the text below a heading, up to the next heading of the same level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[2]


def rows(text: str) -> Iterator[list[str]]:
    """Return the cells of the rows of all tables, without the heads of the tables."""
    for line in _BLOCK.sub("", text).splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def spans(text: str) -> list[str]:
    return _CODE.findall(_BLOCK.sub("", text))


def first_spans(text: str) -> list[str]:
    """Return the code in the first cells of all tables."""
    return [span for first, *_ in rows(text) for span in _CODE.findall(first)]


# ---- verbs and options


@functools.cache
def commands() -> dict[str, click.Command]:
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in VERBS}
    return {name: command for name, command in found.items() if command is not None}


def unknown(text: str) -> list[str]:
    """Return the verbs and options that do not exist but are used by the commands in a text."""
    lines = [span for span in spans(text) if span.startswith("brickd ")]
    lines += [
        line.removeprefix("$ ")
        for _, block in _BLOCK.findall(text)
        for line in block.splitlines()
        if line.startswith(("$ brickd ", "brickd "))
    ]
    return unknown_in(lines)


def unknown_in(lines: list[str]) -> list[str]:
    options = {name: {each for one in command.params for each in one.opts} for name, command in commands().items()}
    found = []
    for line in (part for each in lines for part in re.split(r" (?:&&|;|\\?\|) ", each)):
        words = re.match(r"brickd ([a-z]+)(.*)", line.partition("#")[0].partition(" -- ")[0])
        if words is None:
            continue
        verb, rest = words.groups()
        if verb not in VERBS:
            found.append(f"brickd {verb}")
        known = options.get(verb, set()) | {"-h", "--help"}
        found += [f"brickd {verb} {each}" for each in _OPTION.findall(rest) if verb in VERBS and each not in known]
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_the_section_of_a_verb_has_each_option_and_choice(verb: str) -> None:
    reported = section(page("cli"), f"brickd {verb}")
    words = set(re.findall(r"-*\w[\w-]*", reported))
    for parameter in commands()[verb].params:
        wanted = {str(choice) for choice in getattr(parameter.type, "choices", ())}
        if isinstance(parameter, click.Option):
            wanted |= set(parameter.opts)
        assert wanted <= words, verb


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))], ids=lambda p: p.name)
def test_a_page_names_only_existing_verbs_and_options(path: Path) -> None:
    assert unknown(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("\nSee `brickd frobnicate`.\n", ["brickd frobnicate"]),
        ("\n```console\n$ brickd stat --json\n```\n", ["brickd stat"]),
        ("\n`brickd prune --really` does.\n", ["brickd prune --really"]),
        ("\n```console\n$ brickd status -x   # --not an option\n```\n", ["brickd status -x"]),
        ("\n`brickd run --service api -- program --anything` `brickd tree --dot | dot -Tsvg`\n", []),
        ("\n`brickd down && brickd up -d && brickd stat -q`\n", ["brickd stat"]),
    ],
)
def test_an_unknown_command_is_found(text: str, reported: list[str]) -> None:
    assert unknown(text) == reported


def test_the_examples_in_help_texts_name_only_existing_verbs_and_options() -> None:
    lines = [line.strip() for command in help_texts() for each in command.paragraphs for line in each.text.splitlines()]
    assert sum(line.startswith("brickd ") for line in lines) > 20
    assert unknown_in([line for line in lines if line.startswith("brickd ")]) == []


def test_every_verb_with_a_document_prints_it_in_every_format() -> None:
    for verb, command in commands().items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert (verb in NO_DOCUMENT) == (not {"-o", "--output", "--json"} <= options), verb
    (sentence,) = re.findall(r"^- Every verb but .*?\.", page("cli"), re.MULTILINE | re.DOTALL)
    assert [span for span in _CODE.findall(sentence) if span in VERBS] == list(NO_DOCUMENT)
    (output,) = [parameter for parameter in commands()["status"].params if "--output" in parameter.opts]
    assert isinstance(output.type, click.Choice)
    assert f"-o {'|'.join(map(str, output.type.choices))}" in sentence


# ---- configuration


def variables_read() -> set[str]:
    """Return every complete name of a variable in the sources of the agent and of brickd."""
    files = (
        path for folder in ("agent", "brickd") for path in (ROOT / folder).rglob("*.*") if "build" not in path.parts
    )
    texts = [path.read_text() for path in files if path.suffix in (".c", ".h", ".py")]
    return {name for text in texts for name in re.findall(r'"(BRICKD(?:_[A-Z]+)*)"', text)}


def test_the_documented_variables_match_the_code() -> None:
    named = [span for span in first_spans(page("configuration")) if "BRICKD" in span]
    assert sorted(named) == sorted(variables_read())


def test_the_documented_fields_of_brick_config_match_the_header() -> None:
    header = (ROOT / "agent" / "include" / "brick_agent.h").read_text()
    _, _, body = header.partition("struct brick_config {")
    fields = re.findall(r"^    [\w ]+[ *](\w+);", body.partition("};")[0], re.MULTILINE)
    assert first_spans(section(page("configuration"), "Configuration in C")) == fields


def test_the_documented_options_of_the_daemon_match_up() -> None:
    reported = {
        word for span in first_spans(section(page("configuration"), "Options of the daemon")) for word in span.split()
    }
    own = {opt for each in commands()["up"].params for opt in each.opts} - {"-o", "--output", "--json"}
    assert own == {word for word in reported if word.startswith("-")}


# ---- HTTP


def endpoints(text: str) -> dict[str, set[str]]:
    """Return each path with its method and its parameters."""
    return {
        _CODE.findall(first)[0]: set(_CODE.findall(parameters))
        for first, parameters, *_ in rows(section(text, "Paths"))
        if "/v1" in first
    }


def test_the_documented_paths_and_parameters_match_the_api(daemon: Daemon) -> None:
    index = ask(runtime().socket, "/v1").document
    found = {
        f"{each['method']} {each['path'].replace(':path', '')}": set(each["parameters"]) for each in index["endpoints"]
    }
    assert endpoints(page("http-api")) == found


def kinds() -> set[str]:
    """Return the kinds of errors that the API sends."""
    reported: list[type[BrickdError]] = [BrickdError]
    for error in reported:
        reported += error.__subclasses__()
    texts = [path.read_text() for path in (ROOT / "brickd" / "api").glob("*.py")]
    literal = {
        kind for text in texts for kind in re.findall(r'(?:error_body|_turn_away)\((?:\w+\.\w+, )?"(\w+)"', text)
    }
    return {error.kind for error in reported} | set(error_responses._KINDS.values()) | literal | {"stranger"}


def test_the_documented_error_kinds_match_the_api() -> None:
    assert set(first_spans(section(page("http-api"), "Errors"))) == kinds()


def test_the_documented_stream_events_match_the_sent_ones() -> None:
    streams = (ROOT / "brickd" / "api" / "event_stream.py").read_text()
    sent = set(re.findall(r'_event\("(\w+)"', streams)) | {"status"}
    assert set(first_spans(section(page("http-api"), "Streams"))) == sent


# The page has one block of commands without prompts, which can be pasted into a shell.
(BLOCK,) = re.findall(r"```sh\n(.*?)```", (REFERENCE / "http-api.md").read_text(), re.DOTALL)
BEFORE = [line for line in BLOCK.splitlines() if not line.startswith("curl ")]
EXAMPLES = [line for line in BLOCK.splitlines() if line not in BEFORE]
ENDLESS = "# does not end"


def test_the_example_requests_use_the_variables_set_before_them() -> None:
    assert [line.split("=")[0] for line in BEFORE] == ["SOCKET", "PREFIX"]
    assert len(EXAMPLES) > 9


@pytest.mark.ci
def test_the_variables_of_the_example_requests_are_those_of_this_environment() -> None:
    shell = ["sh", "-c", "\n".join([*BEFORE, 'echo "$SOCKET $PREFIX"'])]
    environment = os.environ | {"PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
    reported = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True).stdout
    assert reported == f"{runtime().socket} {segment_files.prefix()}\n"


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_request_is_quoted_for_a_shell(example: str) -> None:
    assert re.search(r"""^curl .*--unix-socket "\$SOCKET" .*'http://brickd/v1[^']*'""", example)


def asked(command: str, lines: int | None = None) -> str:
    """Return the output of a shell command, or the first `lines` lines if the command does not end by itself."""
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    shell = ["sh", "-c", command.replace("curl ", "exec curl --silent --show-error --fail ", 1)]
    environment = os.environ | {"SOCKET": str(runtime().socket), "PREFIX": segment_files.prefix()}
    with subprocess.Popen(shell, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if lines is not None:
            reported = "".join(process.stdout.readline() for _ in range(lines))
            process.kill()
            return reported
        reported = process.stdout.read()
    assert process.returncode == 0, command
    return reported


def test_each_example_request_returns_a_document(worker: Start, daemon: Daemon) -> None:
    started(worker, BRICKD_SERVICE="api")
    for example in (line for line in EXAMPLES if ENDLESS not in line):
        document = json.loads(asked(example))
        assert (document["schema_version"], document["source"]) == (1, "daemon"), example


@pytest.mark.parametrize("example", [line for line in EXAMPLES if ENDLESS in line])
def test_each_example_request_of_a_stream_returns_events(worker: Start, daemon: Daemon, example: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    daemon.events.add("worker_found", "api/0 was found", service="api", worker="api/0")
    lines = asked(example, lines=4).splitlines()
    (data,) = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert isinstance(json.loads(data), dict)
    assert any(line.startswith("event: ") for line in lines)


def test_the_page_has_examples_of_documents_and_streams() -> None:
    assert len(EXAMPLES) >= 8
    assert sum(ENDLESS in example for example in EXAMPLES) == 2


# ---- JSON

# Keys that every document may have.
BEGUN = {"schema_version", "source", "words", "recording", "recordings"}


def _keys(tree: ast.AST) -> set[str]:
    """Return the keys of the dict literals in a syntax tree."""
    dicts = (node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    return {str(key.value) for each in dicts for key in each.keys if isinstance(key, ast.Constant)}


def keys_written() -> set[str]:
    """Return the JSON keys that the code writes: all keys in views, the keys in functions named `document`, and the
    keys in functions that write `schema_version`.
    """
    found: set[str] = set()
    for path in (ROOT / "brickd").rglob("*.py"):
        text = path.read_text()
        if "views" not in path.parts and "def document" not in text and "schema_version" not in text:
            continue  # skip modules without documents, because parsing all modules takes a second
        tree = ast.parse(text)
        if "views" in path.parts:
            found |= _keys(tree)
            continue
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for function in functions:
            keys = _keys(function)
            if function.name == "document" or "schema_version" in keys:
                found |= keys
    return found


def documented_keys(text: str) -> set[str]:
    """Return every word of the code in a text; `rest.count` has two words."""
    return {word for span in spans(text) for word in re.split(r"[.\s]", span)}


def words_of_code() -> set[str]:
    """Return every word in the source of brickd: in names, strings and comments."""
    texts = [path.read_text() for path in (ROOT / "brickd").rglob("*.py")]
    texts += [path.read_text() for path in (ROOT / "brickd").rglob("*.pyi")]
    return {word for text in texts for word in re.findall(r"\w+", text)}


@pytest.mark.ci
def test_each_key_that_the_code_writes_is_documented() -> None:
    documented = documented_keys(page("json")) | documented_keys(page("http-api"))
    assert sorted(keys_written() - documented) == []


def test_each_documented_key_is_in_the_code() -> None:
    documented = {key for span in first_spans(page("json")) for key in span.split(".")}
    made = {"mean_ns", "min_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "self_ns", "total_ns"}
    assert sorted(documented - words_of_code() - made) == []


def top(title: str) -> set[str]:
    """Return the top-level keys of a document that its section lists."""
    return {re.split(r"[.\[]", span)[0] for span in first_spans(section(page("json"), title).partition("\nA ")[0])}


VIEWS = (
    *("status", "workers", "bricks", "tree", "history", "source", "hang?watch=0.01"),
    *("stragglers", "diff", "coverage", "weights", "inspect", "events"),
)


# Documents that together contain everything a view can show.
RICH = """
source = brick.source("__global__ void f() {}", path="f.cu")
with brick.step(1, kind="decode", rows=4, valid=3), brick.layer(2):
    with brick.span("norm", elements=10, bytes=80, flops=100.0):
        brick.kernel("gemm", (16, 4), 256, 1024, source=source, elapsed_ns=1000, flops=10, bytes=20)
        brick.transfer("H2D", 4096, src="tokens", dst="gpu0")
        brick.transfer("D2H", 4096, src="gpu0", dst="tokens")
        brick.needs("qkv")
    brick.trace(lambda: None)()
    brick.checksum("rope", bytes(64), input=bytes(8), layer=2)
    work = brick.brick("copy").defer()
    brick.finalize(durations={work: 1000.0})
brick.weights({"up": bytes(8)})
brick.brick("open").start()
pause()
"""
# Objects whose keys are data, or are names of the segment format.
BY_NAME = {"dropped", "outliers", "not_comparable", "other_records", "header", "process"}


def keys_in(value: Any) -> set[str]:
    """Return all keys of a document, at any depth."""
    if isinstance(value, list):
        return set().union(*map(keys_in, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(keys_in(each) for key, each in value.items() if key not in BY_NAME))


def test_each_key_of_a_view_at_any_depth_is_documented(worker: Start, daemon: Daemon) -> None:
    started(worker, RICH)
    daemon.judged = judged()
    documented = documented_keys(page("json"))
    for target in VIEWS:
        if target != "inspect":
            document = ask(runtime().socket, f"/v1/{target}").document
            assert sorted(keys_in(document) - documented) == [], target


def test_the_keys_of_a_view_match_its_section(worker: Start, daemon: Daemon) -> None:
    started(worker, SPANS)
    daemon.judged = judged()
    for target in VIEWS:
        title = target.partition("?")[0]
        document = ask(runtime().socket, f"/v1/{target}").document
        only_if = {"diff": {"reasons"}, "weights": {"tensors", "manifest"}}.get(title, set())
        assert set(document) - BEGUN - only_if == top(title) - only_if, title


def judged() -> Any:
    from brickd.analysis.timing.findings import StragglerVerdict
    from brickd.base.timestamps import Moment

    return StragglerVerdict((), (), (), 0, 4, 0, Moment(0, 0))


@pytest.mark.parametrize(
    ("title", "arguments"),
    [
        ("status --check", ["status", "--check"]),
        ("prune", ["prune", "--dry-run"]),
        ("doctor", ["doctor"]),
        ("version", ["version"]),
        ("calibrate", ["calibrate", "--peak-flops", "1e12", "--bandwidth", "1e11"]),
        ("roofline", ["roofline", "--device", "given"]),
    ],
)
def test_the_keys_of_a_verbs_document_match_its_section(
    worker: Start, title: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKD_STATE_DIR", str(tmp_path))
    started(worker, SPANS)
    if title == "roofline":
        brickd("calibrate", "--peak-flops", "1e12", "--bandwidth", "1e11")
    result = brickd(*arguments, "--json")
    assert set(json.loads(result.stdout)) - BEGUN == top(title), result.stderr


def test_the_keys_of_a_set_document_match_its_section(worker: Start, daemon: Daemon) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    assert set(ask(runtime().socket, "/v1/set", b"service=api").document) - BEGUN == top("set") - BEGUN


# ---- exit codes


def test_the_documented_exit_codes_match_the_code() -> None:
    text = page("exit-codes").partition("\n## ")[0]
    codes = {int(first): _CODE.findall(kind) for first, _, kind in rows(text) if first.isdigit()}
    assert sorted(codes) == [*map(int, Exit), 130]
    reported: list[type[BrickdError]] = [BrickdError]
    for error in reported:
        reported += error.__subclasses__()
    assert {kind: code for code, of in codes.items() for kind in of} == {
        each.kind: int(each.exit_code) for each in reported
    }


def test_the_verbs_documented_to_exit_1_do_so() -> None:
    named = {span.split()[1] for span in first_spans(section(page("exit-codes"), "Verbs that exit 1"))}
    modules = {name: importlib.import_module(f"brickd.cli.{name}") for name in VERBS}
    assert named == {name for name, module in modules.items() if "Exit.DIFFERS" in inspect.getsource(module)}


def test_the_documented_health_conditions_match_the_checks() -> None:
    assert first_spans(section(page("exit-codes"), "Health conditions")) == list(health.NAMES)


def test_the_exit_codes_in_the_help_text_match_the_code() -> None:
    (text,) = [each.text for each in next(help_texts()).paragraphs if each.text.startswith("Exit codes")]
    assert [int(number) for number in re.findall(r"^ +(\d+) ", text, re.MULTILINE)] == list(map(int, Exit))


# ---- Python and C


def public_members(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_each_public_name_of_the_agent_is_documented() -> None:
    named = {re.split(r"[(.]", span)[0] for span in first_spans(page("python-api"))}
    assert sorted(set(brick_agent.__all__) - named) == []
    own = page("python-api").partition("\n## brickd.diff")[0]
    assert sorted({re.split(r"[(.]", span)[0] for span in first_spans(own)} - set(brick_agent.__all__)) == []


@pytest.mark.parametrize("name", ["BrickProfiler", "KernelTrace", "TraceRun", "TraceReport"])
def test_each_member_of_a_class_of_older_profilers_is_documented(name: str) -> None:
    (reported,) = [rest for first, *rest in rows(page("python-api")) if _CODE.findall(first) == [name]]
    assert set(_CODE.findall(reported[0])) == public_members(getattr(brick_agent, name))


def test_each_attribute_of_a_divergence_is_documented() -> None:
    fields = {"document", "words"}
    named = set(first_spans(section(page("python-api"), "brickd.diff")))
    assert named == public_members(divergence.Divergence) | fields


def test_each_function_of_the_headers_is_documented() -> None:
    folder = ROOT / "agent" / "include"
    declared = set()
    for header in ("brick_agent", "brick_fingerprint", "brick_graph", "brick_history", "brick_weights", "brick_python"):
        text = re.sub(r"/\*.*?\*/", "", (folder / f"{header}.h").read_text(), flags=re.DOTALL)
        text = re.sub(r"^static inline (?!const struct brick_python \*brick_python\().*", "", text, flags=re.MULTILINE)
        declared |= set(re.findall(r"^[a-z][\w ]*[ *](brick_[a-z_]+)\(", text, re.MULTILINE))
    named = {
        span for span in spans(section(page("python-api"), "C, C++ and Rust")) if re.fullmatch(r"brick_[a-z_]+", span)
    }
    assert sorted(named) == sorted(declared)


def test_the_python_examples_run(prefix: str, tmp_path: Path) -> None:
    blocks = [block for language, block in _BLOCK.findall(page("python-api")) if language == "python"]
    assert len(blocks) == 4
    environment = os.environ | {"BRICKD_STRICT": "1", "BRICKD_STATE_DIR": str(tmp_path)}
    program = [sys.executable, "-P", "-c", "\n".join(blocks)]
    done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# ---- formats


def number(path: str, name: str) -> int:
    found = re.search(rf"^#define {name} (\d+)u?$", (ROOT / path).read_text(), re.MULTILINE)
    assert found is not None, name
    return int(found[1])


def test_the_documented_format_versions_match_the_code() -> None:
    shm, recording = "agent/include/brick_shm.h", "brickd/reader/core/recording_format.h"
    minor = number(shm, "BRICK_MINOR")
    versions = [row[2] for row in rows(page("formats")) if len(row) == 4]
    assert versions[1:] == [
        f"{number(shm, 'BRICK_MAJOR')}.{minor}",
        str(number("agent/include/brick_removed.h", "BRICK_REMOVED_FORMAT")),
        f"{checkpoint.VERSION}, 1",
        f"{number(recording, 'BRICK_RECORDING_MAJOR')}.{number(recording, 'BRICK_RECORDING_MINOR')}",
        "1",
    ]
    assert [int(row[0]) for row in rows(section(page("formats"), "Versions")) if row[0].isdigit()] == [
        *range(1, minor + 1)
    ]


def test_the_documented_chunks_of_a_recording_match_the_header() -> None:
    header = (ROOT / "brickd" / "reader" / "core" / "recording_format.h").read_text()
    kinds = set(re.findall(r"^    BRICK_CHUNK_(\w+) = \d+", header, re.MULTILINE))
    assert set(first_spans(section(page("formats"), "Recordings"))) == kinds


def test_the_errors_that_scripts_catch_exist() -> None:
    for name in re.findall(r"brickd\.errors\.(\w+)", page("python-api")):
        assert issubclass(getattr(errors, name), BrickdError)
