"""The verb `completion`, and the words that a shell offers as completions.

Owns: the offered words. Must not know: what a verb does. Each start of `brickd` imports this module. This module
imports a verb only to complete the arguments of that verb. Invariants: A completion prints words or nothing, but never
an error. The name of a worker is offered only if every shell reads it literally without quotes, so that a shell never
executes a part of a name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from brickd.base import escape
from brickd.errors import BrickdError, Exit

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

# click's protocol: the shell sets this variable, runs `brickd`, and reads the offered words from its stdout.
VARIABLE = "_BRICKD_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

Complete = Callable[[click.Context, click.Parameter, str], list[str]]

_PROGRAM = "brickd"
_HARMLESS = frozenset("._/~+%-")
_INSTALL = {
    "bash": f'eval "$({_PROGRAM} completion bash)"   # at the end of ~/.bashrc',
    "zsh": f'eval "$({_PROGRAM} completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": f"{_PROGRAM} completion fish > ~/.config/fish/completions/{_PROGRAM}.fish",
}


# This script replaces that of click, which leaves variables in the user's shell, lets the shell expand offered words as
# patterns, and shows errors in the middle of the line.
_BASH = """\
_brickd_completion() {
    local IFS=$'\\n' line
    COMPREPLY=()
    while read -r line; do
        case $line in
            plain,*) COMPREPLY+=("${line#plain,}") ;;
            file,*) compopt -o default ;;
            dir,*) compopt -o dirnames ;;
        esac
    done < <(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" _BRICKD_COMPLETE=bash_complete \\
        "${1/#\\~\\//$HOME/}" 2>/dev/null)
}
complete -o nosort -F _brickd_completion brickd 2>/dev/null || complete -F _brickd_completion brickd
"""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes brickd commands in a shell.

    A comment at the start of the script says how to install it.
    """
    click.echo(script(context.find_root().command, shell), nl=False)


def script(command: click.Command, shell: str) -> str:
    """Return the script for a shell, with a comment that says how to install it."""
    source = _BASH if shell == "bash" else _shell(command, shell).source().strip("\n")
    first, _, rest = source.partition("\n")
    comment = f"# TAB completes {_PROGRAM}'s verbs, options and workers. To install:\n#   {_INSTALL[shell]}"
    # zsh loads a completion script only if its first line has this mark.
    lines = (first, comment, rest) if first.startswith("#compdef") else (comment, first, rest)
    return "\n".join(lines).rstrip("\n") + "\n"


def answer(command: click.Command, instruction: str) -> Exit:
    """Answer the shell: words on stdout, or the script."""
    shell, _, action = instruction.partition("_")
    if shell not in SHELLS or action not in ("source", "complete"):
        known = ", ".join(f"{shell}_complete" for shell in SHELLS)
        raise BrickdError(f"{VARIABLE} is {instruction!r}, expected one of {known} (unset {VARIABLE})")
    if action == "source":
        click.echo(script(command, shell), nl=False)
        return Exit.OK
    # Print nothing after an error, because a message would appear in the middle of the line that the user types.
    with contextlib.suppress(Exception):
        if words := _shell(command, shell).complete():
            click.echo(words)
    return Exit.OK


def _shell(command: click.Command, shell: str) -> ShellComplete:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        import importlib.metadata  # a completion does not wait for this module

        seen = importlib.metadata.version("click")
        raise BrickdError(f"the installed click {seen} has no completion for {shell} (pip install --upgrade click)")
    return kind(command, {}, _PROGRAM, VARIABLE)


def complete_workers(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the services and workers whose names begin with `incomplete`."""
    from brickd.datasources.shared_memory import left_behind
    from brickd.model.worker_survey import identities

    found = identities(background=left_behind()[0])
    return _offered([who.service for _, who in found] + [name for name, _ in found], incomplete)


def complete_services(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The services whose names begin with `incomplete`."""
    from brickd.model.worker_survey import identities

    return _offered([who.service for _, who in identities()], incomplete)


def complete_segments(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the workers and segment files whose names begin with `incomplete`; no files if `incomplete` is empty."""
    from brickd.datasources.shared_memory import left_behind
    from brickd.model.worker_survey import identities
    from brickd.shm.segment_files import find

    found = identities(background=left_behind()[0])
    return _offered([name for name, _ in found] + (find() if incomplete else []), incomplete)


def complete_sources(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the hashes of stored sources that begin with `incomplete`."""
    from brickd.base.paths import runtime
    from brickd.model.kernel_sources.files import Filed

    return _offered((f"{hash_:016x}" for hash_ in Filed(runtime().sources).hashes()), incomplete)


def with_recordings(names: Complete | None) -> Complete:
    """Return a function that completes both names and files of recordings."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        import glob

        from brickd.recording.rotation import SUFFIX

        found = sorted(glob.glob(f"{glob.escape(incomplete)}*"))
        files = [each for each in found if each.endswith(SUFFIX) and _means_itself(each.lstrip("./"))]
        return files + (names(context, parameter, incomplete) if names else [])

    return complete


def _offered(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete) and _means_itself(name)]


def _means_itself(name: str) -> bool:
    """Whether every shell reads the name literally, as one word that is not an option."""
    return name[:1].isalnum() and all(c.isalnum() or c in _HARMLESS for c in name) and escape.text(name) == name
