"""The table of the verbs of `brickd`.

Owns: for each verb, its line in the help, its query, whether a daemon answers the query, and other words for the verb.
Must not know: how a query is answered or shown. Invariants: The command of the verb NAME is `brickd.cli.NAME:NAME`. The
answer to its query is `brickd.views.NAME:answer`, or `GET /v1/NAME` of a daemon. Each start of `brickd` imports this
module, so it imports almost nothing itself.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A verb.

    Attributes:
        help: the verb's line in the list of verbs.
        query: the class of its query in `brickd.query.queries`; empty if it has no query. Recordings answer this query,
            too.
        served: whether a daemon answers the query.
        also: words with which a person may mean this verb, separated by spaces.
    """

    help: str
    query: str = ""
    served: bool = True
    also: str = ""


VERBS = {
    "status": Verb(
        "Show totals over all workers, problems first.",
        "StatusQuery",
        also="stat stats summary show info overview health",
    ),
    "top": Verb(
        "Watch workers, bricks and problems live in the terminal.", also="htop watch monitor live dashboard tui"
    ),
    "workers": Verb(
        "List every worker: threads, spans, losses, memory, open spans.",
        "WorkersQuery",
        also="ps ls list processes threads",
    ),
    "bricks": Verb("Show the totals of every brick.", "BricksQuery", also="profile hotspots kernels"),
    "tree": Verb(
        "Show the call tree over all workers: totals, self times, shares.",
        "TreeQuery",
        also="calltree callgraph flamegraph flame graph",
    ),
    "history": Verb(
        "Show rates, percentiles and losses over the last day.", "HistoryQuery", also="past trend timeseries series"
    ),
    "source": Verb("List the sources that kernels were compiled from, or print one.", "SourceQuery", also="code"),
    "roofline": Verb(
        "Compare each brick with the peak performance of a device.",
        "RooflineQuery",
        served=False,
        also="flops mfu utilization",
    ),
    "hang": Verb(
        "Show which spans are open, and name the worker that is stuck.", "HangQuery", also="stuck deadlock stack stacks"
    ),
    "stragglers": Verb(
        "Name the worker that is slow, in which brick, at what cost.", "StragglersQuery", also="slow slowest outliers"
    ),
    "coverage": Verb("Show which computed values were compared, and which were not.", "CoverageQuery", also="compared"),
    "diff": Verb(
        "Show where the numbers of workers first differ, and why.", "DiffQuery", also="compare numerics divergence"
    ),
    "weights": Verb("Check whether replicas hold the same parameters.", "WeightsQuery", also="params parameters"),
    "canary": Verb(
        "Run fixed prompts in workers, and compare what they compute.", also="canaries probe golden selftest"
    ),
    "up": Verb("Start the daemon.", also="start restart serve daemon"),
    "web": Verb("Show the web page of a daemon, or print its URL.", also="browser http page url gui"),
    "down": Verb(
        "Stop the daemon; the next daemon continues from its saved state.", also="stop restart kill shutdown quit"
    ),
    "record": Verb("Record the workers into a file.", also="trace capture save"),
    "spans": Verb(
        "List the longest spans of a recording.", "SpansQuery", served=False, also="slices timeline longest calls"
    ),
    "export": Verb(
        "Write the spans of a recording for other tools.",
        "ExportQuery",
        served=False,
        also="perfetto pprof speedscope convert parquet jsonl csv",
    ),
    "report": Verb("Write one HTML page that anybody can open.", also="html page markdown ticket share"),
    "bundle": Verb("Write one archive for an incident.", also="incident support archive tarball"),
    "inspect": Verb(
        "Show one segment in full: header, lanes, ledger, rings.", "InspectQuery", also="segment show dump"
    ),
    "events": Verb("List the events that the daemon logged.", "EventsQuery", also="logs log journal alarms alerts"),
    "set": Verb(
        "Change what workers record, or a threshold of the daemon.", also="config configure settings enable disable"
    ),
    "silence": Verb("Silence a problem for a time, or list the silenced ones.", also="mute snooze ack ignore"),
    "notify": Verb("Send a test alarm to the daemon's targets.", also="alert"),
    "prune": Verb("Remove the segments of workers that ended or died.", also="clean cleanup clear rm remove delete gc"),
    "calibrate": Verb("Measure the peak performance of this machine.", also="bench benchmark peaks"),
    "doctor": Verb("Find problems of brickd on this machine, with their fixes.", also="check debug diagnose"),
    "run": Verb("Run a command; time and compare its torch models.", also="exec launch attach"),
    "demo": Verb("Run a demonstration: four workers, one damaged, one slow.", also="example tutorial try"),
    "completion": Verb("Print the script that completes brickd commands in a shell.", also="complete bash zsh fish"),
    "help": Verb("Show the help of brickd, or of a verb.", also="man usage"),
    "version": Verb("Print versions, and the socket and directories that brickd uses.", also="ver"),
}


# Words with which a person may mean a verb with an option.
WITH_OPTION = {"status --watch": "watch", "events --follow": "tail follow"}


def takes_recordings(verb: str) -> bool:
    """Whether the verb also shows recordings.

    >>> takes_recordings("status"), takes_recordings("up"), takes_recordings("nonsense")
    (True, False, False)
    """
    return verb in VERBS and VERBS[verb].query != ""


# How similar a word must be to a verb, or to a word that means a verb. Measured on 40 words: `rnu` finds `run` (0.67),
# and `foo` does not find `follow` (0.67).
_LIKE_VERB, _LIKE_WORD = 0.65, 0.73
_MUCH_LESS = 0.1


def meant(word: str) -> list[str]:
    """Return the verbs that a word probably means: verbs with this meaning, or else verbs with a similar spelling.

    >>> meant("ps"), meant("restart"), meant("statsu"), meant("proceses"), meant("watch"), meant("nonsense")
    (['workers'], ['up', 'down'], ['status'], ['workers'], ['top', 'status --watch'], [])
    >>> meant("rnu"), meant("foo"), meant("tops"), meant("Alert")
    (['run'], [], ['top'], ['notify'])
    """
    words = {name: verb.also.split() for name, verb in VERBS.items()}
    words |= {name: also.split() for name, also in WITH_OPTION.items()}
    if by_meaning := [name for name, also in words.items() if word.casefold() in also]:
        return by_meaning
    # Imported here, because it takes 2 ms and only an unknown verb needs it.
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=word.casefold())  # the matcher analyses `b` only once
    likeness = dict[str, float]()
    for name, also in words.items():
        for each, least in ((name, _LIKE_VERB), *((other, _LIKE_WORD) for other in also)):
            matcher.set_seq1(each)
            if (like := matcher.ratio()) >= least:
                likeness[name] = max(like, likeness.get(name, 0))
    best = max(likeness.values(), default=0)
    return [name for name, like in likeness.items() if like > best - _MUCH_LESS]
