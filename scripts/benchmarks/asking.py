"""Many questions to brickd from one interpreter: a verb answers in milliseconds, and takes ten times as long to start.

Run as a module it reads a JSON list of command lines and prints a list of what each printed: `python -m
benchmarks.asking`. The verbs are those of the command line, from their arguments to the JSON that they print.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.workplace import Workplace


def asked(place: Workplace, questions: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """What `brickd` answers to each of these; where it cannot, `error` says why."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.asking"],
        input=json.dumps([[*words, "--json"] for words in questions]),
        env=place.environment,
        cwd=place.folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def _answer(words: list[str]) -> Any:
    from brickd.cli import brickd
    from brickd.errors import BrickdError

    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            brickd.main(words, standalone_mode=False)
    except BrickdError as error:
        return {"error": str(error)}
    return json.loads(printed.getvalue())


def main() -> None:
    """All answers."""
    print(json.dumps([_answer(words) for words in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
