"""Many queries to brickd in one interpreter, because starting a process takes ten times as long as the answer.

As a module (`python -m benchmarks.asking`) it reads lines from stdin, each a JSON list of command lines, and prints for
each line the list of the outputs. This module runs complete verbs, from the parsing of their arguments to the JSON that
they print.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.workplace import Workplace

Ask = Callable[[Sequence[Sequence[str]]], list[dict[str, Any]]]


@contextlib.contextmanager
def asking(place: Workplace) -> Iterator[Ask]:
    """Yield a function that returns brickd's document for each command, or a dict with `error`."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.asking"],
        env=place.environment,
        cwd=place.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def ask(questions: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
            stdin.write(json.dumps([[*words, "--json"] for words in questions]) + "\n")
            stdin.flush()
            if not (line := stdout.readline()):
                raise RuntimeError(f"no answer to {questions}: exit status {process.wait()}")
            answers: list[dict[str, Any]] = json.loads(line)
            return answers

        yield ask
        stdin.close()


def asked(place: Workplace, questions: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return the answers to one list of queries."""
    with asking(place) as ask:
        return ask(questions)


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
    for line in sys.stdin:
        print(json.dumps([_answer(words) for words in json.loads(line)]), flush=True)


if __name__ == "__main__":
    main()
