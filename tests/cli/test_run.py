"""`brickd run` does not change its command, and loads brick_agent into each Python process."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from running import BRICKD

from brickd import launch
from brickd.shm.sampling import DEFAULT, rate_of

pytestmark = pytest.mark.interpreter
BARE = getattr(sys, "_base_executable", sys.executable)  # the path of a Python without brick_agent
BY = {"brickd": [*BRICKD, "run"], "brick_agent": [sys.executable, "-P", "-m", "brick_agent"]}
EITHER = ["brickd", pytest.param("brick_agent", marks=pytest.mark.ci)]


def run(*command: str, by: str = "brickd", **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, **environment}
    return subprocess.run([*BY[by], "--", *command], capture_output=True, text=True, env=given, timeout=60, check=False)


@pytest.mark.ci
@pytest.mark.parametrize("by", EITHER)
def test_run_exits_as_its_command_does(by: str) -> None:
    for script, ends in (("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", -signal.SIGTERM)):
        assert run("sh", "-c", script, by=by).returncode == ends


@pytest.mark.parametrize("by", EITHER)
def test_run_replaces_its_process_by_the_command(by: str) -> None:
    process = subprocess.Popen([*BY[by], "--", "sh", "-c", "echo $$"], stdout=subprocess.PIPE, text=True)
    reported, _ = process.communicate(timeout=60)
    assert int(reported) == process.pid


@pytest.mark.ci
@pytest.mark.parametrize("by", EITHER)
def test_a_command_inherits_its_ignored_and_blocked_signals(by: str) -> None:
    """Python itself ignores SIGPIPE."""
    command = ("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status")
    plain = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert run(*command, by=by).stdout == plain


@pytest.mark.parametrize("by", EITHER)
def test_a_command_inherits_its_environment_plus_our_variables(by: str) -> None:
    """In the locale C, Python adds a variable of its own."""
    given = {"PATH": os.environ["PATH"], "HOME": "/"}
    begun = subprocess.run([*BY[by], "--", "env"], capture_output=True, text=True, timeout=60, check=True, env=given)
    text = dict(line.split("=", 1) for line in begun.stdout.splitlines())
    assert text.keys() - given.keys() == {"BRICKD", "BRICKD_SERVICE", "PYTHONPATH", "_BRICKD_RUN"}
    assert text.items() >= given.items()


@pytest.mark.ci
@pytest.mark.parametrize("by", EITHER)
def test_a_command_that_cannot_be_started_is_reported(by: str, tmp_path: Path) -> None:
    plain, moved = tmp_path / "plain", tmp_path / "moved"
    plain.write_text("nothing")
    moved.write_text("#!/none/bin/python -u\n")
    moved.chmod(0o700)
    for command, code, why in (
        (str(tmp_path / "none"), launch.NOT_FOUND, "no such command: check the name and PATH"),
        ("", launch.NOT_FOUND, "no such command: check the name and PATH"),
        (str(moved), launch.NOT_FOUND, "its interpreter does not exist: #!/none/bin/python -u"),
        (str(plain), launch.NOT_EXECUTABLE, "Permission denied"),
    ):
        ended = run(command, by=by)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert ended.stderr.endswith(f"{command}: {why}\n")


@pytest.mark.parametrize("by", EITHER)
def test_run_without_a_command_is_a_usage_error(by: str) -> None:
    ended = run(by=by)
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize("by", EITHER)
def test_a_misspelled_option_is_not_taken_for_a_command(by: str) -> None:
    begun = [*BY[by], "--servce", "api", "--", "echo", "begun"]
    ended = subprocess.run(begun, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--servce" in ended.stderr


@pytest.mark.ci
@pytest.mark.parametrize("by", EITHER)
def test_an_invalid_rate_is_refused_before_the_command_starts(by: str) -> None:
    """A worker with an invalid rate would record nothing."""
    begun = [*BY[by], "--fingerprints", "1/0", "--", "echo", "begun"]
    ended = subprocess.run(begun, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--fingerprints is 1/0, expected off, all, or 1/N: one step of every N (N up to 1000000)" in ended.stderr


@pytest.mark.parametrize(
    "words", ["off", "all", "1/1", "1/16", "1/1000000", "1/1000001", "1/0", "1/", "2/3", "", "on", "1/٣"]
)
def test_a_command_starts_with_the_configured_rates(words: str) -> None:
    assert words != DEFAULT
    try:
        reported = launch.environment(("x",), {}, fingerprints=words)["BRICKD_FINGERPRINTS"]
    except launch.NotBegunError:
        assert rate_of(words) is None
    else:
        assert (reported, rate_of(words) is None) == (words, False)


SEEN = "import sys, os; print([p for p in sys.path if 'launch' in p], 'brick_agent' in sys.modules)"


@pytest.mark.parametrize(
    "path",
    [
        None,
        *(
            pytest.param(each, marks=pytest.mark.ci)
            for each in ("", ":", "/a", "/a:", ":/a", "/a b::/c/../c", launch.SITE + "x")
        ),
    ],
)
def test_run_does_not_change_sys_path(path: str | None) -> None:
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    given |= {} if path is None else {"PYTHONPATH": path}
    command = (sys.executable, "-c", "import sys; print(sys.path, sys.argv)")
    plain, begun = (
        subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment).stdout
        for environment in (given, launch.environment(command, given))
    )
    assert begun == plain != ""


@pytest.mark.ci
def test_every_process_of_a_family_imports_brick_agent() -> None:
    source = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SEEN!r}]); {SEEN}"
    assert run(sys.executable, "-c", source).stdout == "[] True\n" * 2


@pytest.mark.ci
def test_without_brickd_in_the_environment_nothing_of_ours_is_imported() -> None:
    assert run("env", "-u", "BRICKD", sys.executable, "-c", SEEN).stdout == "[] False\n"


@pytest.mark.ci
def test_a_host_with_brickd_0_imports_nothing_of_ours() -> None:
    assert run("env", "BRICKD=0", sys.executable, "-c", SEEN).stdout == "[] False\n"


@pytest.mark.ci
@pytest.mark.parametrize("by", EITHER)
def test_a_command_below_brickd_0_starts_unchanged(by: str) -> None:
    asked = "import os; print(*sorted(os.environ))"
    plain = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60, check=True,
                           env=os.environ | {"BRICKD": "0"})  # fmt: skip
    begun = run(sys.executable, "-c", asked, by=by, BRICKD="0")
    assert begun.stdout == plain.stdout
    assert "BRICKD is 0, so nothing is recorded" in begun.stderr


def lines_at_end(source: str, **environment: str) -> list[str]:
    """Return the lines on stderr of a program that runs under `brickd run`."""
    ended = run(sys.executable, "-c", source, **environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr.splitlines()


@pytest.mark.ci
@pytest.mark.parametrize("by", EITHER)
def test_a_program_that_recorded_nothing_prints_one_line_at_its_end(by: str) -> None:
    ended = run(sys.executable, "-c", "import os, sys; print(os.getpid(), file=sys.stderr)", by=by)
    pid, line = ended.stderr.splitlines()
    assert line == (
        f"brickd run: nothing was recorded in process {pid}: it did not import torch, but brickd run times only models"
        ' of torch; to time other code, name its parts: with brick_agent.span("NAME"):'
    )


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize("call", ["init()", "brick('a')", "BrickProfiler().start('a')", "shutdown()"])
def test_a_program_that_only_opened_its_segment_prints_one_line_at_its_end(call: str) -> None:
    (line,) = lines_at_end(f"import brick_agent\nbrick_agent.init()\nbrick_agent.{call}")
    assert (
        ": it did not import torch, but brickd run times only models of torch; to time other code, name its parts"
        in line
    )


RECORDS = [
    "with brick_agent.span('a'): pass",
    "brick_agent.brick('a').start()",
    "brick_agent.kernel('a')",
    "brick_agent.brick('a').defer()",
    "brick_agent.checksum('a', b'1234')",
    "brick_agent.init(); brick_agent.disable()",
    # set the flag which says that a daemon has attached
    "import os; brick_agent.init(); os.pwrite(brick_agent._core._segment_fd(), b'\\1', 4096)",
]


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize("then", ["", "brick_agent.shutdown()"])
@pytest.mark.parametrize("record", RECORDS)
def test_a_program_that_recorded_something_prints_nothing_at_its_end(record: str, then: str) -> None:
    assert lines_at_end(f"import brick_agent\n{record}\n{then}") == []


CHILD = "import brick_agent\nwith brick_agent.span('a'): pass\n"
FORKED = "import os\nif os.fork() == 0:\n    {}\n    os._exit(0)\nos.wait()"
BELOW = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
# Programs that start another Python with a given source, in several ways.
STARTING = {
    "subprocess": "import subprocess, sys; subprocess.run([sys.executable, '-c', {!r}])",
    "a shell": "import os, shlex, sys; os.system(shlex.join([sys.executable, '-c', {!r}]) + '; true')",
    "a child": f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BELOW!r}, {{!r}}])",
    "another run": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-P', '-m', 'brick_agent', '--', sys.executable, '-c', {!r}])",
}


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize("how", STARTING)
def test_a_program_whose_child_recorded_something_prints_nothing_at_its_end(how: str) -> None:
    assert lines_at_end(STARTING[how].format(CHILD)) == []


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_program_whose_workers_recorded_something_prints_nothing_at_its_end(tmp_path: Path, method: str) -> None:
    program = tmp_path / "serve.py"
    for work, lines in (("with brick_agent.span('a'): pass", 0), ("pass", 1)):
        program.write_text(
            f"import brick_agent, multiprocessing\ndef work():\n    {work}\nif __name__ == '__main__':\n"
            f"    worker = multiprocessing.get_context('{method}').Process(target=work)\n"
            "    worker.start(); worker.join()\n"
        )
        ended = run(sys.executable, os.fspath(program))
        assert (ended.returncode, len(ended.stderr.splitlines())) == (0, lines), ended.stderr


@pytest.mark.ci
@pytest.mark.parametrize(
    "source",
    [
        "import subprocess; subprocess.run(['true'])",
        FORKED.format("pass"),
        FORKED.format("import sys; sys.exit()"),
        "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], close_fds=False)",
    ],
    ids=("no Python", "forked", "with its own end", "Python", "with open files"),
)
def test_a_program_whose_children_recorded_nothing_prints_one_line_at_its_end(source: str) -> None:
    ended = run(sys.executable, "-c", f"import os, sys; print(os.getpid(), file=sys.stderr, flush=True)\n{source}")
    pid, line = ended.stderr.splitlines()
    assert line == (
        f"brickd run: nothing was recorded in process {pid} and the processes that it started: none of them called a"
        " torch model; brickd run times only models of torch; to time other code, name its parts: with"
        ' brick_agent.span("NAME"):'
    )


@pytest.mark.ci
@pytest.mark.parametrize(
    "source",
    [
        "import os\nr, w = os.pipe()\nif os.fork() == 0: os.close(w); os.read(r, 1); os._exit(0)",
        "import os; os.closerange(3, 4096)",
        "import os; os.closerange(3, 4096); [os.open('/dev/null', os.O_RDWR) for _ in range(300)]",
    ],
    ids=("a live child", "no files", "other files"),
)
def test_a_program_that_cannot_be_certain_prints_nothing_at_its_end(source: str) -> None:
    assert lines_at_end(source) == []


@pytest.mark.ci
def test_a_program_that_replaces_itself_prints_one_line_at_its_end() -> None:
    (line,) = lines_at_end("import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import os'])")
    assert ": it did not import torch, but" in line


def in_script(folder: Path, text: str, program: str = "") -> list[str]:
    """The output of a start script, in which PYTHON is the interpreter, and serve.py is the program."""
    (folder / "serve.py").write_text(program)
    (folder / "start").write_text(f"#!/bin/sh\ncd {shlex.quote(os.fspath(folder))}\n{text}\n")
    (folder / "start").chmod(0o700)
    ended = run(os.fspath(folder / "start"), PYTHON=sys.executable)
    assert ended.returncode == 0
    return [*ended.stdout.splitlines(), *ended.stderr.splitlines()]


@pytest.mark.ci
@pytest.mark.parametrize(
    "text",
    ["$PYTHON serve.py; true", "$PYTHON serve.py 2>&1 | cat", "$PYTHON serve.py 2>log; cat log"],
    ids=("started", "through a pipe", "into a file"),
)
def test_a_program_in_a_start_script_prints_one_line_at_its_end(tmp_path: Path, text: str) -> None:
    (line,) = in_script(tmp_path, text)
    assert line.startswith("brickd run: nothing was recorded in process ")
    assert line.split(": ")[1].endswith(" (serve.py)")


@pytest.mark.ci
def test_a_program_that_replaces_its_start_script_is_named_by_its_process_alone(tmp_path: Path) -> None:
    (line,) = in_script(tmp_path, "exec $PYTHON serve.py")
    assert line.startswith("brickd run: nothing was recorded in process ")
    assert "(serve.py)" not in line


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_a_script_reads_what_its_programs_print_and_nothing_else(tmp_path: Path) -> None:
    assert in_script(tmp_path, "echo \"<$($PYTHON -c 'print(80)' 2>&1)>\"") == ["<80>"]
    assert in_script(tmp_path, "echo \"<$(true; $PYTHON -c 'print(80)' 2>&1; true)>\"") == ["<80>"]
    assert in_script(tmp_path, "$PYTHON serve.py", CHILD) == []


@pytest.mark.usefixtures("prefix")
def test_a_mark_changes_no_other_file(tmp_path: Path) -> None:
    file, named = tmp_path / "file", tmp_path / "memfd:brickd-run"
    with file.open("w") as other, named.open("w") as like:
        here = os.getpid()
        marks = f"{here}:{other.fileno()} {here}:{like.fileno()} {here}:999 1:0 x:y : {here}:"
        subprocess.run([sys.executable, "-c", CHILD], env=os.environ | {"_BRICKD_RUN": marks}, check=True, timeout=60)
    assert (file.read_bytes(), named.read_bytes()) == (b"", b"")


@pytest.mark.ci
def test_each_process_names_unsupported_model_libraries_at_its_end(tmp_path: Path) -> None:
    for name in ("jax", "onnxruntime", "numpy_only"):
        (tmp_path / f"{name}.py").touch()
    given = os.pathsep.join(filter(None, (os.fspath(tmp_path), os.environ.get("PYTHONPATH"))))
    imports = "import numpy_only, onnxruntime, jax"
    (line,) = lines_at_end(imports, PYTHONPATH=given)
    assert (
        ": it loaded jax, onnxruntime, but brickd run times only models of torch; to time other code, name its parts"
        in line
    )
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {imports!r}])"
    (line,) = lines_at_end(below, PYTHONPATH=given)
    assert ": it loaded jax, onnxruntime, but" in line
    (line,) = lines_at_end(f"{imports}\n{CHILD}", PYTHONPATH=given)
    assert line.split(" ", 4)[4] == (
        "loaded jax, onnxruntime, whose models are not recorded: brickd run times only models of torch; to time other"
        ' code, name its parts: with brick_agent.span("NAME"):'
    )


@pytest.mark.ci
def test_a_program_without_stderr_ends_normally() -> None:
    assert run("sh", "-c", f"exec {shlex.quote(sys.executable)} -c 'print(1)' 2>&-").stdout == "1\n"


HOOKS = "import sys; print([type(each).__module__ for each in sys.meta_path].count('brick_agent._torch.autoload'))"


@pytest.mark.ci
@pytest.mark.parametrize("inner", BY)
@pytest.mark.parametrize("outer", BY)
def test_nested_runs_install_one_hook(outer: str, inner: str) -> None:
    ended = run(*BY[inner], "--", sys.executable, "-c", HOOKS, by=outer)
    assert (ended.returncode, ended.stdout) == (0, "1\n")
    assert ended.stderr.count("nothing was recorded in process ") == len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ("print('its own')", "its own\n"),
        *(
            pytest.param(*each, marks=pytest.mark.ci)
            for each in (
                ("import sys; sys.own = 1", ""),
                ("raise ValueError('broken')", ""),
                ("import nothing_of_this_name", ""),
            )
        ),
    ],
)
def test_the_sitecustomize_of_the_host_still_runs(tmp_path: Path, own: str, text: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(own)
    asked = "import sys; print(getattr(sys, 'own', 0), getattr(sys.modules.get('sitecustomize'), '__file__', None))"
    command = (sys.executable, "-c", asked)
    given = {**os.environ, "PYTHONPATH": str(tmp_path)}
    plain, begun = (
        subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        for environment in (given, launch.environment(command, given))
    )
    assert (begun.returncode, begun.stdout, begun.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert begun.stdout.startswith(text)


@pytest.mark.ci
def test_an_interpreter_without_brick_agent_is_reported_once() -> None:
    source = f"import subprocess, sys; subprocess.run([{BARE!r}, '-c', 'print(1)'])"
    ended = run(BARE, "-c", source)
    assert (ended.returncode, ended.stdout) == (0, "1\n")
    (line,) = ended.stderr.splitlines()
    assert "has no brick_agent" in line
    assert "pip install" in line


@pytest.mark.ci
@pytest.mark.parametrize("stderr", ["&-", "/dev/full"])
def test_a_host_with_unwritable_stderr_starts_normally(stderr: str, tmp_path: Path) -> None:
    (tmp_path / "brick_agent.py").write_text("raise ValueError('broken')")
    for path in ("", os.fspath(tmp_path)):
        command = f"exec {shlex.quote(BARE)} -c 'print(1)' 2>{stderr}"
        ended = run("sh", "-c", command, PYTHONPATH=path)
        assert (ended.returncode, ended.stdout) == (0, "1\n")


@pytest.mark.ci
def test_another_virtual_environment_keeps_its_sitecustomize_and_has_no_agent(tmp_path: Path) -> None:
    subprocess.run([BARE, "-m", "venv", "--without-pip", tmp_path / "home"], check=True)
    (folder,) = (tmp_path / "home").glob("lib/python*/site-packages")
    (folder / "sitecustomize.py").write_text("print('its own')")
    ended = run(os.fspath(tmp_path / "home" / "bin" / "python"), "-c", "print(1)")
    assert (ended.returncode, ended.stdout) == (0, "its own\n1\n")
    assert f"{tmp_path}/home/bin/python has no brick_agent" in ended.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("uvicorn", "app:app"), "uvicorn"),
        (("/usr/local/bin/gunicorn", "-w", "4"), "gunicorn"),
        (("python", "serve.py", "--port", "1"), "serve"),
        (("python3.11", "-X", "dev", "-u", "serve/app.py"), "app"),
        (("python", "-Wignore", "-m", "vllm.entrypoints"), "vllm"),
        (("python", "-mvllm"), "vllm"),
        (("python", "-c", "pass"), "python"),
        (("python",), "python"),
        (("python", "-m"), "python"),
        (("python", "-"), "python"),
        (("python", "--", "-x.py"), "-x"),
        (("python3.13t", "--check-hash-based-pycs", "always", "serve/"), "serve"),
        (("sh", "start.sh"), "sh"),
    ],
)
def test_a_service_without_a_name_is_named_after_its_program(words: tuple[str, ...], named: str) -> None:
    assert launch.environment(words, {})["BRICKD_SERVICE"] == named
    assert launch.environment(words, {"BRICKD_SERVICE": "own"})["BRICKD_SERVICE"] == "own"
    assert launch.environment(words, {"BRICKD_SERVICE": "own"}, service="api")["BRICKD_SERVICE"] == "api"


def test_pythonpath_gains_no_current_directory() -> None:
    """An empty entry in PYTHONPATH means the current directory, but an empty PYTHONPATH does not."""
    for before, path in ((None, [launch.SITE]), ("", [launch.SITE]), ("/a:", [launch.SITE, "/a", ""])):
        given = {} if before is None else {"PYTHONPATH": before}
        assert launch.environment(("x",), given)["PYTHONPATH"].split(os.pathsep) == path
    twice = launch.environment(("x",), launch.environment(("x",), {"PYTHONPATH": "/a"}))
    assert twice["PYTHONPATH"].split(os.pathsep) == [launch.SITE, "/a"]


@pytest.mark.parametrize(
    ("options", "letter"),
    [
        (("-I",), "I"),
        (("-uE",), "E"),
        (("-X", "dev"), ""),
        (("-X", "dev", "-bI"), "I"),
        (("-Wignore", "-S", "x.py"), "S"),
        (("--check-hash-based-pycs", "always", "-E"), "E"),
        (("-mx", "-I"), ""),
        (("--", "-I"), ""),
        (("-Sc", "1"), "S"),
        (("-c", "-I"), ""),
        (("x.py", "-I"), ""),
    ],
)
def test_an_interpreter_that_ignores_pythonpath_is_reported(options: tuple[str, ...], letter: str) -> None:
    why = launch.obstacle((sys.executable, *options), {})
    assert (why or "").startswith(f"python -{letter} " if letter else "")
    assert (why is None) == (letter == "")


@pytest.mark.ci
def test_a_script_with_an_interpreter_that_ignores_pythonpath_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text(f"#!{sys.executable} -IS\nprint(1)\n")
    script.chmod(0o700)
    ended = run(str(script))
    assert (ended.returncode, ended.stdout) == (0, "1\n")
    assert "python -I ignores PYTHONPATH" in ended.stderr


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("sudo", "-u", "www", "uvicorn"), "sudo"),
        (("/usr/bin/env", "-i", "uvicorn"), "env"),
        (("env", "A=1", "uvicorn", "-i"), None),
    ],
)
def test_a_program_that_passes_no_environment_on_is_reported(command: tuple[str, ...], text: str | None) -> None:
    why = launch.obstacle(command, {})
    assert why == (text and f"{text} starts a command with its own environment: put `brickd run` after {text}")


def test_both_distributions_share_the_file_that_starts_commands() -> None:
    assert (ROOT / "brickd" / "launch").resolve() == ROOT / "agent" / "brick_agent" / "launch"
