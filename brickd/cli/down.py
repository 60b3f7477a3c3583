"""The verb `down`.

Owns: the messages about the end of a daemon. Must not know: how a daemon ends. Invariant: the daemon is reported as
ended only after it has released its lock.
"""

from __future__ import annotations

import os
import signal
import time

import click

from brickd.base.files import holder
from brickd.base.paths import Runtime, runtime
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import ParameterType
from brickd.errors import DaemonRefused, NoDaemon, NotPermitted
from brickd.query.parameters import Duration

_STEP_SECONDS = 0.02


@click.command()
@click.option("--wait", type=ParameterType(Duration(0, 3600, "")), default="20s", show_default=True, metavar="DURATION",
              help="Wait at most this long for the end of the daemon.")  # fmt: skip
@output_options
def down(wait: float, output: str) -> None:
    """Stop the daemon; the next daemon continues from its saved state."""
    here = runtime()
    pid = _holder(here)
    if pid is None:
        raise NoDaemon(f"no daemon runs in {here.directory} (brickd up starts one)")
    if pid == 0:
        raise NotPermitted(f"the daemon in {here.directory} runs in another pid namespace: run brickd down there")
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise NotPermitted(
            f"the daemon is process {pid} of another user: only that user and root may stop it (sudo kill {pid})"
        ) from error
    until = time.monotonic() + wait
    while _holder(here) is not None:
        if time.monotonic() > until:
            raise DaemonRefused(f"process {pid} has not ended within {wait:g} s (see {here.log})")
        time.sleep(_STEP_SECONDS)
    document = {"schema_version": 1, "pid": pid}
    emit(document, output, table=lambda _: [f"the daemon has ended: process {pid}"])


def _holder(here: Runtime) -> int | None:
    try:
        fd = os.open(here.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise NotPermitted(
            f"{here.lock}: cannot be opened: {error.strerror} (run brickd down as the daemon's user, or as root)"
        ) from error
    try:
        return holder(fd, 0)
    finally:
        os.close(fd)
