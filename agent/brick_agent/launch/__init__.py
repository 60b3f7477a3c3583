"""Start a command so that each of its Python processes loads brick_agent.

Owns: the environment of the command, and the cases in which this environment has no effect. Must not know: the work of
brick_agent. The distributions brickd and brick-agent both contain this package, so that each can start a host; the
package imports neither. Invariants: the command replaces this process and keeps its pid, signals and standard streams;
recording starts only with BRICKD=1 in the environment, and an existing BRICKD=0 is kept; Python imports from the same
places as before.
"""

from __future__ import annotations

import os
import re
import shutil
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # the exit codes that shells, env and nohup use
_USAGE = 2
_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?d?")
_WITH_VALUE = "cmWX"  # options of Python that take a value
_LONG_WITH_VALUE = "--check-hash-based-pycs"
_RATE = re.compile(r"off|all|1/([1-9][0-9]{0,5}|1000000)", re.ASCII)
_SHEBANG_MAX = 256
_OF_THEIR_OWN = frozenset(("doas", "docker", "kubectl", "podman", "runuser", "ssh", "su", "sudo", "systemd-run"))
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class NotBegunError(Exception):
    """Raised if the command cannot start; `code`: the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def run(command: Sequence[str], *, service: str | None, fingerprints: str | None, log: Callable[[str], None]) -> int:
    """Replace this process by the command; return the exit code if the command cannot start."""
    try:
        environ = inherited()
        variables = environment(command, environ, service=service, fingerprints=fingerprints)
        if (why := obstacle(command, environ)) is not None:
            log(why)
        begin(command, variables)
    except NotBegunError as error:
        log(str(error))
        return error.code


def begin(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command."""
    for each in _IGNORED_BY_PYTHON:
        signal.signal(each, signal.SIG_DFL)  # otherwise the command would also ignore the signal
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: the name is empty
        raise NotBegunError(f"{command[0] or repr('')}: {_missing(command[0])}", NOT_FOUND) from None
    except OSError as error:
        raise NotBegunError(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None


def _missing(command: str) -> str:
    """Return the message for a missing command or interpreter."""
    file = shutil.which(command)
    if file is None:
        return "no such command: check the name and PATH"
    first = _first_line(file)
    return f"its interpreter does not exist: {first}" if first.startswith("#!") else "its loader does not exist"


def inherited() -> dict[str, str]:
    """Return the environment without the LC_CTYPE that Python sets in the locale C."""
    environ = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            if not any(each.startswith(b"LC_CTYPE=") for each in file.read().split(b"\0")):
                environ.pop("LC_CTYPE", None)
    except OSError:  # without /proc, LC_CTYPE is kept
        pass
    return environ


def environment(
    command: Sequence[str], given: Mapping[str, str], *, service: str | None = None, fingerprints: str | None = None
) -> dict[str, str]:
    """Return the environment of the command."""
    if fingerprints is not None and not _RATE.fullmatch(fingerprints):
        rates = "off, all, or 1/N: one step of every N (N up to 1000000)"
        raise NotBegunError(f"--fingerprints is {fingerprints}, expected {rates}", _USAGE)
    if given.get("BRICKD") == "0":
        return dict(given)
    # An empty PYTHONPATH counts as unset; an empty entry in it means the directory where the command starts.
    path = given.get("PYTHONPATH") or None
    others = [] if path is None else [each for each in path.split(os.pathsep) if each != SITE]
    result = {**given, "BRICKD": "1", "PYTHONPATH": os.pathsep.join((SITE, *others))}
    result["_BRICKD_RUN"] = _run_word(given.get("_BRICKD_RUN", ""))
    if service is not None or not given.get("BRICKD_SERVICE"):
        result["BRICKD_SERVICE"] = service or service_of(command)
    if fingerprints is not None:
        result["BRICKD_FINGERPRINTS"] = fingerprints
    result.pop("_BRICKD_TOLD", None)
    return result


def _run_word(outer: str) -> str:
    """Return this run's word (PID@STDERR), then the marks (PID:FD) of the outer runs: see `_torch/unrecorded.py`."""
    try:
        status = os.fstat(2)
        stderr = f"{status.st_dev}.{status.st_ino}"
    except OSError:  # closed
        stderr = ""
    own = f"{os.getpid()}:"
    return " ".join((f"{os.getpid()}@{stderr}", *(w for w in outer.split() if ":" in w and not w.startswith(own))))


def service_of(command: Sequence[str]) -> str:
    """Return the default service: the name of the program, or of Python's script or module."""
    program = os.path.basename(command[0])
    return _python(command[1:])[1] or program if _PYTHON.fullmatch(program) else program


def _python(words: Sequence[str]) -> tuple[str, str]:
    """Return the letters of Python's options, and the name of its script or module, or ""."""
    letters, rest = "", iter(words)
    for word in rest:
        if word == "--":
            return letters, _file(next(rest, ""))
        if not word.startswith("-") or word == "-":
            return letters, "" if word == "-" else _file(word)
        if word.startswith("--"):
            if word == _LONG_WITH_VALUE:
                next(rest, None)
            continue
        for at, letter in enumerate(word[1:], 2):
            letters += letter
            if letter in _WITH_VALUE:
                value = word[at:] or next(rest, "")
                if letter in "cm":
                    return letters, value.split(".")[0] if letter == "m" else ""
                break
    return letters, ""


def _file(word: str) -> str:
    return os.path.basename(word.rstrip("/")).removesuffix(".py")


def obstacle(command: Sequence[str], given: Mapping[str, str]) -> str | None:
    """Return why the command's first process will not load brick_agent; None: no known reason."""
    if given.get("BRICKD") == "0":
        return "BRICKD is 0, so nothing is recorded: unset BRICKD"
    program, words = os.path.basename(command[0]), list(command[1:])
    if program in _OF_THEIR_OWN or (program == "env" and {"-", "-i", "--ignore-environment"}.intersection(words[:1])):
        return f"{program} starts a command with its own environment: put `brickd run` after {program}"
    file = shutil.which(command[0])
    if file is not None and not _PYTHON.fullmatch(os.path.basename(file)):
        words = _shebang(file)
    letter = next((each for each in _python(words)[0] if each in "IES"), None)
    if letter is None:
        return None
    hinders = "imports no sitecustomize" if letter == "S" else "ignores PYTHONPATH"
    return f"python -{letter} {hinders}, so nothing is recorded: call brick_agent.instrument(model) in the program"


def _shebang(file: str) -> list[str]:
    """Return the options of Python in a script's first line; empty if the line names no Python."""
    first = _first_line(file)
    words = first[2:].split() if first.startswith("#!") else []
    at = next((n for n, word in enumerate(words) if _PYTHON.fullmatch(os.path.basename(word))), None)
    return [] if at is None else words[at + 1 :]


def _first_line(file: str) -> str:
    try:
        with open(file, "rb") as script:
            return script.readline(_SHEBANG_MAX).decode(errors="replace").strip()
    except OSError:
        return ""
