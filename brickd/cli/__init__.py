"""The command `brickd`: the group of all verbs, one file per verb.

Owns: the translation of any error into one line and an exit code, the handling of a closed stdout. Must not know: what
a verb does. Only `completion` and the verb that runs are imported. Invariants: Every exit code is one of `Exit`, or 130
after Ctrl-C, even for a defect (Python would exit with 1, which means "differs"). The exception is `run`, which exits
like a shell if it cannot start its command. A verb returns None or an `Exit`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from brickd.base import escape
from brickd.cli.completion import VARIABLE, answer
from brickd.cli.output import print_message
from brickd.errors import BrickdError, Exit
from brickd.query.verbs import VERBS, meant

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_INTERRUPTED = 130


class _Group(click.Group):
    """A group that knows the names of its verbs and imports only the verb that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(importlib.import_module(f"brickd.cli.{cmd_name}"), cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(name, help=verb.help) for name, verb in VERBS.items() if name.startswith(incomplete)]
        # click's own completion would import every verb to check whether it is hidden.
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS:
            raise click.UsageError(f"No such command {args[0]!r}.{_hint(args[0])}", ctx)
        return super().resolve_command(ctx, args)


def _hint(word: str) -> str:
    """Suggest the verbs that an unknown word may mean, or say what kind of file has this name. "" if there is none."""
    from brickd.recording.mistaken_files import what_it_is

    # A path is never a misspelt verb, even if it looks like one.
    names = "" if "." in word or "/" in word else " or ".join(f"`{name}`" for name in meant(word))
    hint = f" Did you mean {names}?" if names else ""
    if (kind := what_it_is(word)) is not None:
        hint += f" It is {'also ' if names else ''}{kind}: {_with_file(word, kind)}"
    return hint


def _with_file(word: str, kind: str) -> str:
    """Return the command to use for a file that was given in the place of a verb."""
    from brickd.model.worker_names import as_argument
    from brickd.recording.mistaken_files import MISSING, RECORDING

    if kind == MISSING:
        return "`brickd record -o FILE` writes one"
    return f"brickd status {as_argument(word)}" if kind == RECORDING else "`brickd run -- CMD` measures a program"


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:  # a completion prints only words
        from brickd.client.other_version import installed

        click.echo(f"brickd {installed('brickd') or 'not installed'}")
        context.exit()


@click.group(cls=_Group, subcommand_metavar="VERB [ARGS]...", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def brickd() -> None:
    """Show where the time goes in a running multi-process server.

    A WORKER is a name such as api/0. A SERVICE is the group of workers that run the same program, such as api.
    A RECORDING is a file that "brickd record" wrote. A verb that takes a RECORDING shows it instead of this machine.

    \b
    Exit codes:
      0  fine, or equal
      1  different, or unhealthy
      2  wrong usage, or an error
      3  no daemon answers
      4  no such worker or source
      5  not permitted
      6  nothing to compare
    """  # noqa: D301  (click's own mark for "do not fill these lines")


def main() -> int:
    """Run `brickd` with the arguments of this process and return its exit code."""
    if sys.stdout is None:
        # The caller closed a standard descriptor (`>&-`). Without this, the next file would be opened as descriptor 1.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In an ASCII locale, show the name of a worker with escapes instead of failing.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if instruction := os.environ.get(VARIABLE):
            return answer(brickd, instruction)
        return _run(sys.argv[1:] or ["--help"])
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrickdError as error:
        print_message(str(error))
        return error.exit_code
    except click.ClickException as error:
        print_message(_one_line(error))
        return Exit.TROUBLE
    except OSError as error:
        return _after_os_error(error)
    except Exception as error:
        client = sys.modules.get("brickd.client.client")  # loaded only by verbs that ask a daemon
        other = None if client is None else client.unlike(error)
        _show_defect() if other is None else print_message(str(other))
        return Exit.TROUBLE


def _run(args: list[str]) -> int:
    try:
        with brickd.make_context("brickd", args) as context:
            # click gives the result of a verb the type Any. A verb returns None or an `Exit`.
            code: Any = brickd.invoke(context)
            return code or Exit.OK
    finally:
        sys.stdout.flush()


def _one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} (see {context.command_path} --help)" if context else message


def _after_os_error(error: OSError) -> int:
    unread = error.errno == errno.EPIPE and _stdout_has_no_reader()
    try:
        sys.stdout.flush()
    except OSError:
        # Without this, the interpreter would flush stdout again at exit and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if unread:
        return Exit.OK
    print_message(str(error))
    return Exit.TROUBLE


def _stdout_has_no_reader() -> bool:
    """Whether the pipe that failed is stdout. If another pipe failed, such as a daemon's socket, that is an error."""
    import select

    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _show_defect() -> None:
    import traceback

    with contextlib.suppress(OSError):
        for line in traceback.format_exc().splitlines():
            click.echo(escape.text(line), err=True)
    print_message("this is a defect of brickd: please report it with the lines above")
