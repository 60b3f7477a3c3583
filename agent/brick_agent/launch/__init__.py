"""A command begins so that brick_agent is told of each Python process that comes of it.

Owns: its environment, and when that cannot help. Must not know: what brick_agent does then. Both distributions have
this package, so that a host may be begun by either: it uses neither. Invariants: the command takes the place of this
process, with its number, its signals, its standard streams, and what it ends with; without BRICKD=1 in its environment
nothing of ours happens, and who has set BRICKD=0 has it so; what a Python imports from is what it was.
"""

from __future__ import annotations

import os
import re
import shutil
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell ends, env and nohup
_USAGE = 2
_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?d?")
_WITH_VALUE = "cmWX"  # options of Python that another word belongs to, or ends them
_LONG_WITH_VALUE = "--check-hash-based-pycs"
_RATE = re.compile(r"off|all|1/([1-9][0-9]{0,5}|1000000)", re.ASCII)
_SHEBANG_MAX = 256
_OF_THEIR_OWN = frozenset(("doas", "docker", "kubectl", "podman", "runuser", "ssh", "su", "sudo", "systemd-run"))
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class NotBegunError(Exception):
    """The command cannot be begun.

    Attributes:
        code: what to end with.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def begin(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Have it take the place of this process."""
    for each in _IGNORED_BY_PYTHON:
        signal.signal(each, signal.SIG_DFL)  # what is ignored stays so in whoever takes our place
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except (FileNotFoundError, NotADirectoryError):
        raise NotBegunError(f"{command[0]}: {_missing(command[0])}", NOT_FOUND) from None
    except OSError as error:
        raise NotBegunError(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None


def _missing(command: str) -> str:
    """What is, of a command that could not be found: itself, or what it is to be run by."""
    found = shutil.which(command)
    if found is None:
        return "there is no such command"
    first = _first_line(found)
    return f"what it names is not there: {first}" if first.startswith("#!") else "what would load it is not there"


def inherited() -> dict[str, str]:
    """The environment that this process was begun with: in the locale C a Python sets LC_CTYPE in its own."""
    given = dict(os.environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            if not any(each.startswith(b"LC_CTYPE=") for each in file.read().split(b"\0")):
                given.pop("LC_CTYPE", None)
    except OSError:  # a /proc that is not there: then it stays
        pass
    return given


def environment(
    command: Sequence[str], given: Mapping[str, str], *, service: str | None = None, fingerprints: str | None = None
) -> dict[str, str]:
    """That of the command."""
    if fingerprints is not None and not _RATE.fullmatch(fingerprints):
        wanted = "off, all, or 1/N for one step of N, of at most 1000000"
        raise NotBegunError(f"--fingerprints {fingerprints}: {wanted} is wanted", _USAGE)
    if given.get("BRICKD") == "0":
        return dict(given)
    # An empty variable is none; an empty part of one that is not is the directory in which the command begins.
    path = given.get("PYTHONPATH") or None
    others = [] if path is None else [each for each in path.split(os.pathsep) if each != SITE]
    said = {**given, "BRICKD": "1", "PYTHONPATH": os.pathsep.join((SITE, *others))}
    if service is not None or not given.get("BRICKD_SERVICE"):
        said["BRICKD_SERVICE"] = service or service_of(command)
    if fingerprints is not None:
        said["BRICKD_FINGERPRINTS"] = fingerprints
    said.pop("_BRICKD_TOLD", None)
    return said


def service_of(command: Sequence[str]) -> str:
    """What its processes are called together, where nobody says it: by the program, or by what Python runs."""
    program = os.path.basename(command[0])
    return _python(command[1:])[1] or program if _PYTHON.fullmatch(program) else program


def _python(words: Sequence[str]) -> tuple[str, str]:
    """The letters of the options that Python is given, and what it runs; that has no name where nobody gave it one."""
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


def unheard(command: Sequence[str], given: Mapping[str, str]) -> str | None:
    """Why brick_agent will not be told of the command's first process; None: nothing is known that would hinder it."""
    if given.get("BRICKD") == "0":
        return "BRICKD=0 is set, which forbids it: nothing is recorded"
    program, words = os.path.basename(command[0]), list(command[1:])
    if program in _OF_THEIR_OWN or (program == "env" and {"-", "-i", "--ignore-environment"}.intersection(words[:1])):
        return f"{program} begins a command with an environment of its own: give `brickd run` behind it"
    found = shutil.which(command[0])
    if found is not None and not _PYTHON.fullmatch(os.path.basename(found)):
        words = _shebang(found)
    letter = next((each for each in _python(words)[0] if each in "IES"), None)
    if letter is None:
        return None
    hinders = "imports no sitecustomize" if letter == "S" else "does not look at PYTHONPATH"
    return f"python -{letter} {hinders}: call brick_agent.instrument(model) in the program"


def _shebang(file: str) -> list[str]:
    """The options that a script gives to the Python that it names."""
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
