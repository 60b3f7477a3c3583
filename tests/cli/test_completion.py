"""The shell completion, as a real bash uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from conftest import SHM, reading
from faults import Start
from forge import with_header
from hypothesis import given
from hypothesis import strategies as st
from verbs import brickd, started

from brickd.cli import brickd as group
from brickd.cli.completion import SHELLS, _means_itself, script
from brickd.query.verbs import VERBS

# Does what readline does for a completion: it sets these variables, calls the function and reads COMPREPLY. The
# arguments are the script, the position of the cursor, and the line.
ASK = """
eval "$1"; shift
type=mine value=mine line=mine completion=mine
COMP_CWORD=$1; shift; COMP_WORDS=("$@")
_brickd_completion "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
[[ $type$value$line$completion = mineminemine"mine" ]] || echo "variables of the person's shell were changed" >&2
(( ${#COMPREPLY[@]} == 0 )) || printf '%s\\0' "${COMPREPLY[@]}"
"""


def environment() -> dict[str, str]:
    """Return an environment in which the command `brickd` is the one under test."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def tab(*line: str, at: Path | None = None, first: str = "brickd") -> list[str]:
    """Return the candidates that bash offers to complete the last word of this line."""
    bash = shutil.which("bash")
    assert bash is not None
    result = subprocess.run(
        [bash, "--norc", "-c", ASK, "bash", script(group, "bash"), str(len(line)), first, *line],
        capture_output=True, text=True, check=True, env=environment(), cwd=at,
    )  # fmt: skip
    assert result.stderr == ""
    return result.stdout.split("\0")[:-1]


def offered(*line: str) -> list[str]:
    """Return the candidates of the completion script itself, without bash; only for words that need no quoting."""
    reported = complete("bash_complete", COMP_WORDS=" ".join(("brickd", *line)), COMP_CWORD=str(len(line)))
    assert reported.stderr == ""
    return [word.removeprefix("plain,") for word in reported.stdout.splitlines()]


@pytest.mark.ci
def test_tab_completes_verbs() -> None:
    assert offered("") == list(VERBS)
    assert tab("st") == offered("st") == ["status", "stragglers"]
    assert offered("--v") == ["--version"]
    assert offered("nonsense") == []


@pytest.mark.ci
def test_tab_completes_options_and_choices() -> None:
    assert offered("prune", "--") == ["--dry-run", "--refused", "--output", "--json", "--help"]
    assert tab("version", "-o", "js") == offered("version", "-o", "js") == ["json", "jsonl"]
    assert offered("completion", "") == list(SHELLS)


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_tab_completes_recordings_where_a_verb_takes_one(tmp_path: Path) -> None:
    for name in ("run.brick", "run.1.brick", "notes.txt", "$(touch owned).brick"):
        (tmp_path / name).touch()
    for verb in ("status", "events", "inspect"):
        assert tab(verb, "r", at=tmp_path) == ["run.1.brick", "run.brick"]
    assert tab("status", f"{tmp_path}/run.b") == [f"{tmp_path}/run.brick"]
    assert tab("set", "r", at=tmp_path) == []


def test_tab_completes_nothing_in_an_invalid_line() -> None:
    for line in (["nonsense", ""], ["status", "-o", "xml", "--nope", "x"], ["doctor", ""]):
        assert offered(*line) == []
    behind_version = complete("bash_complete", COMP_WORDS="brickd --version stat", COMP_CWORD="2")
    assert behind_version.stdout == "plain,status\n"
    assert tab("stat", first="~/nowhere/brickd") == []


def test_tab_completes_brickd_called_by_a_path_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "brickd").symlink_to(Path(sys.executable).parent / "brickd")
    assert tab("stat", first="~/brickd") == ["status"]


@pytest.mark.ci
def test_tab_completes_workers_for_every_argument_that_takes_one(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    started(worker, BRICKD_SERVICE="batch")
    context = click.Context(group)
    for verb in VERBS:
        command = group.get_command(context, verb)
        assert command is not None
        for parameter in command.params:
            metavar = (isinstance(parameter, click.Argument) and parameter.metavar) or ""
            if "WORKER" in metavar:
                assert offered(verb, "ba")[-1:] == ["batch/0"], verb
            if metavar.removeprefix("[RECORDING]... ") in ("SERVICE", "[SERVICE]..."):
                assert offered(verb, "") == ["api", "batch"], verb
            elif "SERVICE" in metavar:
                assert offered(verb, "") == ["api", "batch", "api/0", "batch/0"], verb
                assert offered(verb, "api/0", "b") == ["batch", "batch/0"], verb
            if "SEGMENT" in metavar:
                files = sorted(file for file in os.listdir(SHM) if file.startswith(prefix))
                assert offered(verb, prefix[:-3]) == files, verb
    assert tab("status", "") == offered("status", "")


HOSTILE = [
    "a b", "a'b", 'a"b', "a$(touch owned)", "a`touch owned`", "a;touch owned", "a:b", "a,b", "a\\b", "*", "?", "[a]",
    "{a,b}", "-x", "~root", "#a", "!a", "a|b", "a&b", "a>b", "a=b", "a\u202eb", "a\u3164b", "+a", "%1",
]  # fmt: skip


@pytest.mark.ci
def test_a_name_that_needs_quoting_is_not_completed(tmp_path: Path, prefix: str) -> None:
    names = [
        *HOSTILE,
        "a\nb",
        "a\x1b[2Jb",
        "a\tb",
        "\udc80".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    ]
    for number, name in enumerate([*names, "模型-7b", "fine_1.0+x%y~z"]):
        image = with_header(uuid=os.urandom(16), service=name.encode(), coordinates=b"", index=number)
        (SHM / f"{prefix}{number}").write_bytes(image)
    (SHM / f"{prefix}$(touch owned)").write_bytes(b"")
    offered = tab("status", "", at=tmp_path)
    assert [name for name in offered if "/" not in name] == ["fine_1.0+x%y~z", "模型-7b"]
    assert len(offered) == 4
    assert tab("inspect", prefix, at=tmp_path) == sorted(f"{prefix}{number}" for number in range(len(names) + 2))
    tab("status", "a$(touch owned)", "`touch owned`", "a;touch owned", "*", at=tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(
    st.lists(st.text(min_size=1, max_size=12) | st.text("ab/~%+-.,:*$'\"\\ \n", min_size=1, max_size=6), min_size=20)
)
def test_every_completion_can_be_used_unquoted_in_bash(names: list[str]) -> None:
    offered = [name for name in [*names, *HOSTILE, "api/0~3fa2c1", "a"] if _means_itself(name)]
    reported = subprocess.run(
        ["bash", "--norc", "-c", f"printf '%s\\0' {' '.join(offered)}"], capture_output=True, text=True, check=True
    )
    assert reported.stdout.split("\0")[:-1] == offered


def complete(instruction: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return brickd(_BRICKD_COMPLETE=instruction, **variables)


@pytest.mark.ci
def test_tab_prints_nothing_where_nothing_can_be_read(prefix: str) -> None:
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    assert tab("status", "") == []
    for variables in ({}, {"COMP_WORDS": "brickd"}, {"COMP_WORDS": "brickd st", "COMP_CWORD": "x"}):
        result = complete("bash_complete", **variables)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.ci
def test_tab_prints_nothing_where_the_reader_does_not_load() -> None:
    code = "import sys; sys.modules['brickd.shm._reader'] = None; from brickd.cli import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False,
        env=os.environ | {"_BRICKD_COMPLETE": "bash_complete", "COMP_WORDS": "brickd status ", "COMP_CWORD": "2"},
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "instruction", ["x", "bash", "bash_run", "_complete", "csh_complete", "bash_complete\x1b[2J\n"]
)
def test_an_unknown_instruction_is_one_line_and_exits_2(instruction: str) -> None:
    result = complete(instruction, COMP_WORDS="brickd ", COMP_CWORD="1")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "expected one of bash_complete" in result.stderr
    assert "\x1b" not in result.stderr


def loaded_at(words: str, cword: int) -> set[str]:
    """Return the modules of brickd that a completion loads."""
    code = "from brickd.cli import main; main(); import sys; print(*sys.modules, file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"_BRICKD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(cword)},
    )  # fmt: skip
    assert result.stdout
    return {module for module in result.stderr.split() if module.partition(".")[0] in ("brickd", "numpy")}


@pytest.mark.ci
def test_tab_loads_a_verb_only_to_complete_its_arguments() -> None:
    base = ("base", "base.escape", "base.files", "errors")
    words = {f"brickd.{each}" for each in (*base, "cli", "cli.output", "cli.completion", "query", "query.verbs")}
    assert loaded_at("brickd st", 1) == {"brickd"} | words
    # The module of the verb `completion` is always loaded, because it runs here.
    verbs = {f"brickd.cli.{verb}" for verb in VERBS} - {"brickd.cli.completion"}
    for verb in ("prune", "status"):
        assert loaded_at(f"brickd {verb} --", 2) & verbs == {f"brickd.cli.{verb}"}


def test_the_completion_script_has_instructions_and_equals_that_of_click() -> None:
    for shell in SHELLS:
        reported = script(group, shell)
        assert "# TAB completes" in reported
        assert f"brickd completion {shell}" in reported
        assert f"_BRICKD_COMPLETE={shell}_complete" in reported
    assert script(group, "zsh").startswith("#compdef brickd\n")
    assert brickd("completion", "zsh").stdout == complete("zsh_source").stdout == script(group, "zsh")


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_bash_parses_the_completion_script(shell: str, check: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(script(group, shell))
    result = subprocess.run([program, check, tmp_path / "script"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.ci
def test_tab_completes_the_segment_file_of_a_worker(worker: Start, prefix: str) -> None:
    started(worker)
    assert tab("inspect", prefix) == [reading(prefix).file]
