"""Follows pages of the documentation as a reader does: creates the files and runs the commands.

A fenced block with `title="NAME"` is a file. In a `console` block each line that begins with `$ ` is a command; the
lines below it are its output. `# exits N` after a command states its exit code (default 0); ` &` runs it in the
background.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from conftest import ROOT

HOW_TO = ROOT / "docs" / "how-to"
_BLOCK = re.compile(r"^( *)```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_EXITS = re.compile(r" +# exits (\d+)$")
# Commands that only a reader can run on their own machine; the tests skip them.
_ELSEWHERE = ("docker", "install", "kubectl", "loginctl", "pip", "pipx", "sudo", "systemctl", "systemd-analyze")
# These commands change nothing. They are repeated until their output is the one that is on the page.
_READING = re.compile(
    "curl |brickd (status|workers|bricks|tree|hang|stragglers|coverage|diff|weights|events|record .*--until-exit)"
)
_NUMBER = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|(?<![\w/])[<~+-]*\d[\d.,:]*(e-?\d+)?")
_PATIENCE_SECONDS = 120


class Block(NamedTuple):
    """A fenced block."""

    language: str
    title: str
    text: str


class Command(NamedTuple):
    """A command line, its exit code, and the lines that it prints."""

    line: str
    code: int
    output: tuple[str, ...]
    elsewhere: bool = False
    """Whether only a reader can run the command on their own machine."""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    return [
        Block(language, title, re.sub(f"^{indent}", "", body, flags=re.MULTILINE))
        for indent, language, title, body in _BLOCK.findall(text)
    ]


def commands(text: str) -> list[Command]:
    """The commands of the console blocks of a page.

    Commands that follow one with `sudo` may need what it changed, so they also run only on the reader's machine.
    """
    found = []
    for block in blocks(text):
        if block.language == "console":
            changed = False
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                line, *output = part.replace("\\\n", "").splitlines()
                exits = _EXITS.search(line)
                changed = changed or line.startswith("sudo ")
                elsewhere = changed or line.split()[0] in _ELSEWHERE
                found.append(Command(_EXITS.sub("", line), int(exits[1]) if exits else 0, tuple(output), elsewhere))
    return found


def stated(output: str) -> list[str]:
    """Return the parts of an output that are the same in each run: the first line, the heads of tables, and problems.
    Numbers are replaced by #.
    """
    lines = output.splitlines()
    kept = [line for n, line in enumerate(lines) if n == 0 or line.startswith("! ") or re.match(r"[A-Z]{4}", line)]
    return [" ".join(_NUMBER.sub("#", line.partition("…")[0]).split()) for line in kept]


class Reader:
    """Follows a page in its own folder, as a reader would."""

    def __init__(self, folder: Path, replaced: Mapping[str, str]) -> None:
        self.folder, self.replaced = folder, replaced
        self.background: list[subprocess.Popen[bytes]] = []
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "COLUMNS": "110", "OMP_NUM_THREADS": "1"}
        self.environment.pop("BRICKD_STRICT", None)

    def follow(self, text: str) -> None:
        """Create the files of a page and run its commands."""
        for block in blocks(text):
            if block.title:
                (self.folder / block.title).write_text(block.text)
        for command in commands(text):
            if not command.elsewhere:
                self.type(command)

    def type(self, command: Command) -> None:
        """Run a command, and compare its output with the page."""
        line = command.line
        for old, new in self.replaced.items():
            line = line.replace(old, new)
        if line.endswith(" &"):
            began = subprocess.Popen(
                ["bash", "-c", f"exec env {line[:-2]}"], cwd=self.folder, env=self.environment, process_group=0
            )
            self.background.append(began)
            return
        by = time.monotonic() + _PATIENCE_SECONDS
        while True:
            done = subprocess.run(
                ["bash", "-c", line], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
            )  # fmt: skip
            seen = stated_lines(done.stdout)
            missing = [each for each in stated("\n".join(command.output)) if not any(each in one for one in seen)]
            if done.returncode == command.code and not missing:
                return
            again = _READING.match(line) and time.monotonic() < by
            assert again, f"{line}: exit code {done.returncode}, not shown: {missing}\n{done.stdout}"
            time.sleep(0.2)

    def leave(self) -> None:
        """End the background commands."""
        for each in self.background:
            with each:
                if each.poll() is None:
                    os.killpg(each.pid, signal.SIGTERM)
                    try:
                        each.wait(10)
                    except subprocess.TimeoutExpired:
                        os.killpg(each.pid, signal.SIGKILL)
        subprocess.run(["brickd", "down"], env=self.environment, capture_output=True, check=False)


def stated_lines(output: str) -> list[str]:
    """Return every line, without numbers."""
    return [" ".join(_NUMBER.sub("#", line).split()) for line in output.splitlines()]


@contextmanager
def reader(folder: Path, **replaced: str) -> Iterator[Reader]:
    """Yield a reader; finally, end its commands. `replaced` maps texts of the page to their replacements."""
    one = Reader(folder, replaced)
    try:
        yield one
    finally:
        one.leave()
