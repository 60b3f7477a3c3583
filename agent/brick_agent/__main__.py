"""`python -m brick_agent -- CMD`: does the same as `brickd run`, and does not need brickd.

Owns: the arguments of the program. Must not know: how a command starts.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from brick_agent import launch


def main() -> int:
    """Start the command. Return the exit code if the command cannot start."""
    parser = argparse.ArgumentParser(
        "python -m brick_agent",
        usage="%(prog)s [-h] [--service NAME] [--fingerprints off|1/N|all] -- CMD",
        description="Run a command; time and compare its torch models.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--service", metavar="NAME", help="name the group of workers (default: the name of the command)"
    )
    parser.add_argument(
        "--fingerprints",
        metavar="off|1/N|all",
        help="record checksums in no steps (off), in one step of N, or in all steps (default: 1/64)",
    )
    parser.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER, help="the command and its arguments")
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("expected a command after --, found none")
    return launch.run(command, service=arguments.service, fingerprints=arguments.fingerprints, log=_log)


def _log(text: str) -> None:
    with contextlib.suppress(AttributeError, OSError):  # stderr may be closed or full
        sys.stderr.write(f"brick_agent: {text}\n")


if __name__ == "__main__":
    raise SystemExit(main())
