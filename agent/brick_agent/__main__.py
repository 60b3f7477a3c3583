"""`python -m brick_agent -- CMD`: as `brickd run`, where only brick_agent is installed.

Owns: its arguments. Must not know: how a command is begun.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from brick_agent import launch


def main() -> int:
    """Begin the command; what it returns is why that could not be."""
    parser = argparse.ArgumentParser(
        "python -m brick_agent",
        usage="%(prog)s [-h] [--service NAME] [--fingerprints off|1/N|all] -- CMD",
        description="Run a command; time and compare its torch models.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--service", metavar="NAME", help="the name of the group of workers (default: the name of the command)"
    )
    parser.add_argument(
        "--fingerprints",
        metavar="off|1/N|all",
        help="record checksums in these steps: none, one in N, or all (default: 1/64)",
    )
    parser.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER, help="the command, with its arguments")
    said = parser.parse_args()
    command = said.command[1:] if said.command[:1] == ["--"] else said.command
    if not command:
        parser.error("there is no command: give one after --")
    try:
        given = launch.inherited()
        environment = launch.environment(command, given, service=said.service, fingerprints=said.fingerprints)
        if (why := launch.unheard(command, given)) is not None:
            _say(why)
        launch.begin(command, environment)
    except launch.NotBegunError as error:
        _say(str(error))
        return error.code


def _say(what: str) -> None:
    # Closed, or full: nobody is left to tell.
    with contextlib.suppress(AttributeError, OSError):
        sys.stderr.write(f"brick_agent: {what}\n")


if __name__ == "__main__":
    raise SystemExit(main())
