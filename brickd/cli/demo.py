"""The verb `demo`.

Owns: what is shown, and when. Must not know: how the processes are started and ended, the computation of the workers.
Invariant: the processes of the demonstration always end with the verb, and leave no files.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import time
from collections.abc import Sequence

import click

from brickd.cli.diff import diff
from brickd.cli.output import print_message
from brickd.cli.query_options import ParameterType
from brickd.cli.status import status
from brickd.cli.stragglers import stragglers
from brickd.cli.weights import weights
from brickd.demo import processes
from brickd.errors import BrickdError
from brickd.query.parameters import Duration

# For each screen: when it is shown (a fraction of the total time), its command, and its reason. A straggler is found
# only after five looks, ten seconds apart.
_TYPED = (
    (0.02, "weights demo", "do all have the same weights?"),
    (0.1, "diff demo", "do all compute the same?"),
    (1.0, "stragglers demo", "which one is slow?"),
    (1.0, "status", "all of it"),
)
_VERBS = {"weights": weights, "diff": diff, "stragglers": stragglers, "status": status}


@click.command()
@click.option("--seconds", type=ParameterType(Duration(0.5, 600, "")), default="50s", show_default=True,
              metavar="DURATION", help="Run for this time. To find the slow worker, brickd needs 50s.")  # fmt: skip
def demo(seconds: float) -> None:
    """Run a demonstration: four workers, one damaged, one slow.

    Starts a daemon and four replicas of a small transformer, shows what brickd finds, and cleans up.
    """
    if importlib.util.find_spec("brick_agent") is None:
        raise BrickdError(
            "brick-agent is not installed, and the demo's workers need it: pip install ./agent, or brickd[demo]"
        )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_by_signal)
    with processes.place(), processes.running() as running:
        print_message(
            "starting a daemon and four replicas of a transformer: one replica has a flipped bit in a weight, another"
            " replica is slow in one kernel"
        )
        began = time.monotonic()
        for share, line, why in _TYPED:
            _until(began + share * seconds, running)
            click.echo(f"$ brickd {line}    # {why} {time.monotonic() - began:.0f} s after the workers started")
            verb, *words = line.split()
            _VERBS[verb].main(words, standalone_mode=False)
            click.echo()
    print_message("the workers have ended and removed their segments; to time your own code: pydoc brick_agent")


def _end_by_signal(number: int, _: object) -> None:
    """Exit with the code that shells use for this signal, so that the demonstration cleans up."""
    sys.exit(128 + number)


def _until(moment: float, running: Sequence[processes.Process]) -> None:
    steps = max(1, round((moment - time.monotonic()) * 10))
    with click.progressbar(length=steps, label="running", file=sys.stderr, show_eta=False) as bar:
        while time.monotonic() < moment:
            processes.check(running)
            time.sleep(0.1)
            bar.update(1)
