"""The next command, rewritten for the recordings of an answer.

Owns: how a command names the recordings of an answer. Must not know: the answers of individual verbs. Invariants: A
command can be pasted into a shell. A command that takes no recording is never shown for a recording, because it would
describe this machine instead. A command that already names the recordings is not changed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from brickd.query.verbs import takes_recordings


def command(document: Mapping[str, Any], text: str) -> str:
    """Return the command to show with this answer, which names the recordings if there are any.

    >>> command({"recording": {"files": [{"path": "a b.brick"}]}}, "brickd diff api/0 api/1")
    "brickd diff 'a b.brick' api/0 api/1"
    >>> command({"recording": {"files": [{"path": "-x.brick"}]}}, "brickd prune"), command({}, "brickd prune")
    ('brickd workers -- -x.brick', 'brickd prune')
    """
    recording = document.get("recording")
    return text if recording is None else _of_recordings(text, [file["path"] for file in recording["files"]])


def rewritten(document: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite the commands in an answer's entries."""
    return {key: _entries(document, value) if isinstance(value, list) else value for key, value in document.items()}


def _entries(document: Mapping[str, Any], entries: Sequence[Any]) -> list[Any]:
    return [
        {**each, "command": command(document, each["command"])}
        if isinstance(each, dict) and isinstance(each.get("command"), str)
        else each
        for each in entries
    ]


def _of_recordings(text: str, paths: Sequence[str]) -> str:
    # The import is here because this module loads the reader of segments. An answer of a daemon must not need the
    # reader.
    from brickd.model.worker_names import as_arguments

    try:
        program, verb, *words = shlex.split(text)
    except ValueError:  # the text has no words or an unclosed quote, since a recording may contain any text
        program, verb, words = "", "", []
    if program != "brickd" or not takes_recordings(verb):
        verb, words = "workers", []
    names = [word for word in words if word not in ("--", *paths)]
    return f"brickd {verb} {as_arguments([*paths, *names])}"
