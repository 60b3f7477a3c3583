"""The table of the verbs of `brickd`.

Owns: each verb's line in the help, its query, whether a daemon answers it. Must not know: how a query is answered or
shown. Invariants: the command of the verb NAME is `brickd.cli.NAME:NAME`; the answer to its query is
`brickd.views.NAME:answer`, or `GET /v1/NAME` of a daemon. It imports almost nothing: each start of `brickd` loads it.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A verb.

    Attributes:
        help: its line in the list of verbs.
        query: the name of a class in `brickd.query.queries`, which recordings also answer. Empty: the verb has none.
        served: whether a daemon answers the query.
    """

    help: str
    query: str = ""
    served: bool = True


VERBS = {
    "status": Verb("Show totals over all workers, problems first.", "StatusQuery"),
    "workers": Verb("List every worker: threads, spans, losses, memory, open spans.", "WorkersQuery"),
    "bricks": Verb("Show the totals of every brick.", "BricksQuery"),
    "tree": Verb("Show the call tree over all workers: totals, self times, shares.", "TreeQuery"),
    "source": Verb("List the sources that kernels were compiled from, or print one.", "SourceQuery"),
    "roofline": Verb("Compare each brick with the peak performance of a device.", "RooflineQuery", served=False),
    "hang": Verb("Show which spans are open, and name the worker that is stuck.", "HangQuery"),
    "stragglers": Verb("Name the worker that is slow, in which brick, at what cost.", "StragglersQuery"),
    "coverage": Verb("Show which computed values were compared, and which were not.", "CoverageQuery"),
    "diff": Verb("Show where the numbers of workers first differ, and why.", "DiffQuery"),
    "weights": Verb("Check whether replicas hold the same parameters.", "WeightsQuery"),
    "up": Verb("Start the daemon."),
    "down": Verb("Stop the daemon; the next one continues from its state."),
    "record": Verb("Record what workers do into a file."),
    "inspect": Verb("Show one segment in full: header, lanes, ledger, rings.", "InspectQuery"),
    "events": Verb("List the events that the daemon logged.", "EventsQuery"),
    "set": Verb("Change what workers record, or a threshold of the daemon."),
    "silence": Verb("Silence a problem for a time, or list the silenced ones."),
    "notify": Verb("Send a test alarm to the daemon's targets."),
    "prune": Verb("Remove the segments of workers that ended or died."),
    "calibrate": Verb("Measure the peak performance of this machine."),
    "doctor": Verb("Find what keeps brickd from working here, with the fix."),
    "run": Verb("Run a command; time and compare its torch models."),
    "demo": Verb("Run a demonstration: four workers, one damaged, one slow."),
    "completion": Verb("Print the script that completes brickd commands in a shell."),
    "version": Verb("Print the versions of brickd, Python and the segment format."),
}


def takes_recordings(verb: str) -> bool:
    """Whether the verb also shows recordings.

    >>> takes_recordings("status"), takes_recordings("up"), takes_recordings("nonsense")
    (True, False, False)
    """
    return verb in VERBS and VERBS[verb].query != ""
