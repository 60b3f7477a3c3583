"""The command `brickd` as people and scripts use it: real processes, output and exit codes."""

import csv
import fcntl
import io
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from verbs import brickd

from brickd import errors
from brickd.errors import Exit
from brickd.query.verbs import VERBS, WITH_OPTION

SOURCE = str(Path(errors.__file__).parent.parent)

# Verbs that end in every possible way.
ENDINGS = """
import click, os, socket, sys
from brickd import errors
from brickd.cli.output import emit, output_options
from brickd.screens.screen import Screen

ROWS = [
    {"name": "=cmd()", "count": -1, "by": {"full": 2}, "problem": None, "ok": True},
    {"name": "x\\x1b[2J\\udc80", "count": 0.5, "more": "-1"},
]

@click.command()
@output_options
def listing(output):
    def table(screen: Screen):
        return [screen.paint("1 PROBLEM", "red"), f"width {screen.width}"]
    emit({"schema_version": 1, "rows": ROWS}, output, table=table, rows="rows")
    return errors.Exit.DIFFERS

@click.command()
@click.argument("name")
def fails(name):
    raise getattr(errors, name)("no worker 'a\\x1b[2J\\nb', there are api/0, api/1")

@click.command()
def refused():
    raise errors.SegmentRefused("/dev/shm/brickd-x", "magic 0, wanted 7")

@click.command()
def defect():
    raise ZeroDivisionError("hostile \\x1b[2J")

@click.command()
def waits():
    print("ready", flush=True)
    sys.stdin.read()

@click.command()
def endless():
    while True:
        print("x" * 1000)

@click.command()
def hangup():
    one, other = socket.socketpair()
    other.close()
    one.send(b"x")

@click.command()
def name():
    print("größe …")
"""
RUN = """
import sys
import endings
from brickd.cli import main
from brickd.query.verbs import VERBS, Verb
for name in ("listing", "fails", "refused", "defect", "waits", "endless", "hangup", "name"):
    VERBS[name] = Verb(name)
    sys.modules[f"brickd.cli.{name}"] = endings
sys.exit(main())
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return kept | {"PYTHONPATH": SOURCE, "PYTHONIOENCODING": "utf-8"} | more


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which a process finds the verbs above."""
    folder = tmp_path_factory.mktemp("endings")
    (folder / "endings.py").write_text(ENDINGS)
    return environment(PYTHONPATH=f"{SOURCE}{os.pathsep}{folder}")


@pytest.fixture(scope="module")
def ending(endings: dict[str, str]) -> Run:
    def run_ending(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", RUN, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=endings | more, check=False, timeout=60)

    return run_ending


def test_the_list_of_verbs_imports_no_verb_but_the_one_that_completes_all() -> None:
    code = "from brickd.cli import main; main(); import sys; print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True, timeout=60)
    imported = set(helped.stderr.split())
    assert "brickd.cli" in imported
    assert imported & {f"brickd.cli.{verb}" for verb in VERBS} == {"brickd.cli.completion"}
    assert not imported & {"json", "csv", "numpy"}
    assert all(verb.help in helped.stdout for verb in VERBS.values())


def test_without_arguments_it_prints_its_help() -> None:
    assert (brickd().returncode, brickd().stdout) == (0, brickd("--help").stdout)


def test_an_unknown_verb_exits_2_and_names_similar_ones() -> None:
    ended = brickd("statsu")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "brickd: No such command 'statsu'. Did you mean `status`? (see brickd --help)\n"


@pytest.mark.parametrize(
    ("word", "verbs"),
    [("ps", "`workers`"), ("LS", "`workers`"), ("logs", "`events`"),
     ("restart", "`up` or `down`"), ("kil", "`down`"), ("watch", "`top` or `status --watch`"), ("monitor", "`top`"),
     ("tail", "`events --follow`"), ("htop", "`top`"), ("dwon", "`down`"), ("healt", "`status`")],
)  # fmt: skip
def test_an_unknown_verb_suggests_verbs_with_its_meaning(word: str, verbs: str) -> None:
    assert brickd(word).stderr == f"brickd: No such command '{word}'. Did you mean {verbs}? (see brickd --help)\n"


def test_synonyms_of_verbs_are_not_verbs() -> None:
    words = [word for verb in VERBS.values() for word in verb.also.split()]
    words += [word for also in WITH_OPTION.values() for word in also.split()]
    assert not set(words) & set(VERBS)
    assert all(word == word.casefold() for word in words)


@pytest.mark.parametrize("verb", WITH_OPTION)
def test_a_suggested_option_exists(verb: str) -> None:
    name, option = verb.split()
    assert f"  {option} " in brickd(name, "--help").stdout


def test_an_unknown_verb_without_a_similar_one_gets_no_suggestion() -> None:
    for word in ("qqqq", "foo"):
        assert brickd(word).stderr == f"brickd: No such command '{word}'. (see brickd --help)\n"


def test_the_verb_and_the_option_show_the_same_help() -> None:
    assert brickd("help").stdout == brickd("--help").stdout
    for verb in ("status", "help"):
        assert (brickd("help", verb).returncode, brickd("help", verb).stdout) == (0, brickd(verb, "--help").stdout)
    assert "No such command 'ps'. Did you mean `workers`?" in brickd("help", "ps").stderr


@pytest.mark.parametrize("arguments", [["--nope"], ["version", "-o", "xml"], ["version", "x"], ["q\x1b[2J\n"]])
def test_a_wrong_command_line_is_one_line_on_stderr_and_exits_2(arguments: list[str]) -> None:
    ended = brickd(*arguments)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("brickd: ")
    assert "--help)" in ended.stderr
    assert "\x1b" not in ended.stderr


def test_version_prints_the_same_in_every_format() -> None:
    document = json.loads(brickd("version", "--json").stdout)
    assert list(document) == [
        "schema_version", "version", "build", "python", "format", "socket", "prefix", "runtime_directory",
        "state_directory", "segments_directory",
    ]  # fmt: skip
    assert document["python"] == ".".join(map(str, sys.version_info[:3]))
    assert json.loads(brickd("version", "-o", "jsonl").stdout) == document
    (row,) = csv.DictReader(io.StringIO(brickd("version", "-o", "csv").stdout))
    assert row == {key: str(value if value is not None else "") for key, value in document.items()}
    shown = dict(line.split(maxsplit=1) for line in brickd("version").stdout.splitlines())
    assert (shown["python"], shown["socket"], shown["prefix"]) == tuple(
        document[key] for key in ("python", "socket", "prefix")
    )
    assert brickd("--version").stdout.split()[:1] == ["brickd"]


@pytest.mark.ci
def test_version_prints_the_places_in_use(tmp_path: Path) -> None:
    given = {"BRICKD_RUNTIME_DIR": str(tmp_path / "r"), "BRICKD_STATE_DIR": "s", "BRICKD_SHM_PREFIX": "p-"}
    document = json.loads(brickd("version", "--json", **given).stdout)
    assert document["socket"] == f"{tmp_path}/r/socket"
    assert (document["runtime_directory"], document["state_directory"]) == (f"{tmp_path}/r", "s")
    assert (document["prefix"], document["segments_directory"]) == ("p-", "/dev/shm")
    assert json.loads(brickd("version", "--json", **given, BRICKD_SOCKET="/x y").stdout)["socket"] == "/x y"
    assert (
        "prefix    invalid: see BRICKD_SHM_PREFIX\n" in brickd("version", **given | {"BRICKD_SHM_PREFIX": "a/b"}).stdout
    )
    assert brickd("version", **given, COLUMNS="20").stdout == brickd("version", **given).stdout, "no path is cut"
    undecodable = brickd("version", "--json", **given | {"BRICKD_SHM_PREFIX": "p\udcff"})
    assert (undecodable.returncode, json.loads(undecodable.stdout)["prefix"]) == (0, None)


def test_two_formats_at_once_are_refused() -> None:
    ended = brickd("version", "--json", "-o", "csv")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--json contradicts --output csv" in ended.stderr


@pytest.mark.ci
@pytest.mark.parametrize(
    ("error", "code"),
    [("BrickdError", 2), ("NoDaemon", 3), ("NoSuchWorker", 4), ("NotPermitted", 5), ("NothingComparable", 6)],
)
def test_an_error_is_one_escaped_line_and_its_exit_code(ending: Run, error: str, code: int) -> None:
    ended = ending("fails", error)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr == "brickd: no worker 'a\\x1b[2J\\nb', there are api/0, api/1\n"


def test_no_error_exits_with_a_code_that_means_an_answer() -> None:
    tree: list[type[errors.BrickdError]] = [errors.BrickdError]
    for error in tree:
        tree += error.__subclasses__()
    assert not {error.exit_code for error in tree} & {Exit.OK, Exit.DIFFERS}


def test_a_refused_segment_is_reported_with_path_and_reason(ending: Run) -> None:
    ended = ending("refused")
    assert (ended.returncode, ended.stderr) == (2, "brickd: /dev/shm/brickd-x: magic 0, wanted 7\n")


@pytest.mark.ci
def test_a_verb_that_found_a_difference_exits_1(ending: Run) -> None:
    ended = ending("listing")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "1 PROBLEM\nwidth None\n", "")


@pytest.mark.ci
def test_a_defect_exits_2_and_a_difference_exits_1(ending: Run) -> None:
    ended = ending("defect")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert r"ZeroDivisionError: hostile \x1b[2J" in ended.stderr


@pytest.mark.ci
def test_rows_are_printed_as_lines_of_json(ending: Run) -> None:
    document = json.loads(ending("listing", "--json").stdout)
    lines = ending("listing", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == document["rows"]
    assert document["rows"][1]["name"] == "x\x1b[2J\udc80"
    assert "".join(lines).isascii()


@pytest.mark.ci
def test_rows_are_printed_as_csv_without_spreadsheet_formulas(ending: Run) -> None:
    rows = list(csv.reader(io.StringIO(ending("listing", "-o", "csv").stdout)))
    assert rows == [
        ["name", "count", "by", "problem", "ok", "more"],
        ["'=cmd()", "-1", '{"full":2}', "", "true", ""],
        [r"x\x1b[2J\udc80", "0.5", "", "", "", "'-1"],
    ]


@pytest.mark.ci
def test_an_interrupt_exits_130_without_a_traceback(endings: dict[str, str]) -> None:
    command = [sys.executable, "-c", RUN, "waits"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=endings) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=60)
    assert (process.returncode, words) == (130, "")


@pytest.mark.ci
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["endless"]])
def test_a_closed_stdout_pipe_ends_a_command_silently(
    endings: dict[str, str], arguments: list[str], unbuffered: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=endings | {"PYTHONUNBUFFERED": unbuffered},
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.ci
def test_a_broken_pipe_other_than_stdout_is_an_error(ending: Run) -> None:
    ended = ending("hangup")
    assert (ended.returncode, ended.stderr) == (2, "brickd: [Errno 32] Broken pipe\n")


@pytest.mark.ci
def test_a_full_disk_is_one_line_and_exits_2() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "brickd", "version"]
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False, timeout=60
        )
    assert (ended.returncode, ended.stderr) == (2, "brickd: [Errno 28] No space left on device\n")


@pytest.mark.ci
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_command_works_with_closed_stdout_or_stderr(closed: str) -> None:
    command = f'"{sys.executable}" -m brickd version {closed}'
    assert subprocess.run(command, shell=True, env=environment(), check=False, timeout=60).returncode == 0


@pytest.mark.ci
def test_an_ascii_locale_prints_escapes_instead_of_failing(ending: Run) -> None:
    ended = ending("name", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stdout) == (0, "gr\\xf6\\xdfe \\u2026\n")


def on_a_terminal(env: dict[str, str], columns: int) -> list[bytes]:
    """Return the output of the verb `listing` on a terminal of this width."""
    test_end, terminal_end = pty.openpty()
    fcntl.ioctl(terminal_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    subprocess.run([sys.executable, "-c", RUN, "listing"], stdout=terminal_end, env=env, check=False, timeout=60)
    os.close(terminal_end)
    printed = os.read(test_end, 4096).splitlines()
    os.close(test_end)
    return printed


@pytest.mark.ci
def test_only_terminals_get_colours_and_no_color_disables_them(endings: dict[str, str]) -> None:
    painted = b"\x1b[31m1 PROBLEM\x1b[0m"
    printed = {value: on_a_terminal(endings | {"NO_COLOR": value}, 80)[0] for value in ("", "1")}
    assert printed == {"": painted, "1": b"1 PROBLEM"}


@pytest.mark.ci
def test_columns_overrides_the_width_of_the_terminal(endings: dict[str, str], ending: Run) -> None:
    assert on_a_terminal(endings, 80)[1] == b"width 80"
    assert on_a_terminal(endings, 0)[1] == b"width None"
    assert on_a_terminal(endings | {"COLUMNS": "33"}, 80)[1] == b"width 33"
    assert ending("listing", COLUMNS="33").stdout.splitlines()[1] == "width 33"
