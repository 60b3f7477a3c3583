"""A command begins so that brick_agent is told of each Python process that comes of it.

Owns: its environment, and when that cannot help. Must not know: what brick_agent does then. Both distributions have
this package, so that a host may be begun by either: it uses neither. Invariants: the command takes the place of this
process, with its number, its signals, its standard streams, and what it ends with; without BRICKD=1 in its environment
nothing of ours happens.
"""

from __future__ import annotations

import os
import re
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell ends, env and nohup
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_WITH_VALUE = "cmWX"  # options of Python that another word belongs to, or ends them
_SHEBANG_MAX = 256


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
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except (FileNotFoundError, NotADirectoryError):
        raise NotBegunError(f"{command[0]}: there is no such command", NOT_FOUND) from None
    except OSError as error:
        raise NotBegunError(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None


def environment(
    command: Sequence[str], given: Mapping[str, str], *, service: str | None = None, fingerprints: str | None = None
) -> dict[str, str]:
    """That of the command."""
    path = [each for each in given.get("PYTHONPATH", "").split(os.pathsep) if each and each != SITE]
    # An empty one would be the directory in which the command begins.
    said = {**given, "BRICKD": "1", "PYTHONPATH": os.pathsep.join((SITE, *path))}
    if service is not None or not given.get("BRICKD_SERVICE"):
        said["BRICKD_SERVICE"] = service or service_of(command)
    if fingerprints is not None:
        said["BRICKD_FINGERPRINTS"] = fingerprints
    said.pop("_BRICKD_TOLD", None)
    return said


def service_of(command: Sequence[str]) -> str:
    """What its processes are called together, where nobody says it: by the program, or by what Python runs."""
    words = list(command)
    if _PYTHON.fullmatch(os.path.basename(words[0])) and (rest := _after_options(words[1:])):
        return os.path.basename(rest[0]).removesuffix(".py").split(":")[0] or "python"
    return os.path.basename(words[0])


def _after_options(words: Sequence[str]) -> list[str]:
    """What Python runs; nothing where it is told on the command line or is asked for."""
    words = list(words)
    while words and words[0].startswith("-") and len(words[0]) > 1:
        letters = words.pop(0).lstrip("-")
        at = next((n for n, letter in enumerate(letters) if letter in _WITH_VALUE), None)
        if at is None:
            continue
        value = letters[at + 1 :] or (words.pop(0) if words else "")
        if letters[at] in "cm":
            return [value.split(".")[0]] if letters[at] == "m" and value else []
    return words


def unheard(command: Sequence[str]) -> str | None:
    """Why brick_agent will not be told of the command's first process; None: nothing is known that would hinder it."""
    found = shutil.which(command[0])
    words = list(command[1:])
    if found is not None and not _PYTHON.fullmatch(os.path.basename(found)):
        words = _shebang(found)
    for option in words:
        if not option.startswith("-") or option == "-":
            break
        letters = option[1:]
        for letter in letters:
            if letter in _WITH_VALUE:
                break
            if letter in "IES":
                hinders = "does not look at PYTHONPATH" if letter in "IE" else "imports no sitecustomize"
                return f"python -{letter} {hinders}: call brick_agent.instrument(model) in the program"
        if letters[:1] in ("c", "m"):
            break
    return None


def _shebang(file: str) -> list[str]:
    """The options that a script gives to the Python that it names."""
    try:
        with open(file, "rb") as script:
            first = script.readline(_SHEBANG_MAX)
    except OSError:
        return []
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    at = next((n for n, word in enumerate(words) if _PYTHON.fullmatch(os.path.basename(word))), None)
    return [] if at is None else words[at + 1 :]
