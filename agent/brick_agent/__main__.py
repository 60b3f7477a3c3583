"""`python -m brick_agent -- CMD`: as `brickd run`, where only brick_agent is installed.

Owns: its arguments. Must not know: how a command is begun.
"""

from __future__ import annotations

import argparse
import os
import sys

from brick_agent import launch


def main() -> int:
    """Begin the command; what it returns is why that could not be."""
    parser = argparse.ArgumentParser(
        "python -m brick_agent", description="Run a command; torch models in its processes are instrumented."
    )
    parser.add_argument("--service", help="what its workers are called together")
    parser.add_argument("--fingerprints", metavar="off|1/N|all", help="of which steps checksums are recorded")
    parser.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER)
    said = parser.parse_args()
    command = said.command[1:] if said.command[:1] == ["--"] else said.command
    if not command:
        parser.error("there is no command: give one after --")
    if (why := launch.unheard(command)) is not None:
        sys.stderr.write(f"brick_agent: {why}\n")
    environment = launch.environment(command, os.environ, service=said.service, fingerprints=said.fingerprints)
    try:
        launch.begin(command, environment)
    except launch.NotBegunError as error:
        sys.stderr.write(f"brick_agent: {error}\n")
        return error.code


if __name__ == "__main__":
    raise SystemExit(main())
