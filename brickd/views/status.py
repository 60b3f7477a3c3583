"""The view `status`: totals over all workers, and what is wrong.

Owns: the schema of its document. Must not know: terminals, files. Invariant: the ledger of the document is the sum of
its workers' ledgers, and of what was removed.
"""

from __future__ import annotations

from brickd.ledger import Ledger
from brickd.questions.status import StatusQuestion
from brickd.totals import bricks, categories
from brickd.views import numerics, removed, weighed
from brickd.views.answer import Answer, begun, chosen, counted
from brickd.views.workers import entries, problems, stragglers
from brickd.world import World


def answer(world: World, question: StatusQuestion) -> Answer:
    """Add the workers up."""
    found, workers, words = them = chosen(world, question.names)
    over = counted(world, them, question.over)
    daemon, partial, whole, totals = world.daemon(), bool(question.names), Ledger(), bricks(over.workers)
    slow, compared = stragglers(world, workers), numerics.known(world)
    differing = None if compared is None else numerics.about(compared, workers, partial=partial)
    beside = weighed.beside(world, found, workers)
    called = numerics.called_now(found.workers)
    weights = weighed.findings(beside, workers, partial=partial)
    gone = removed.chosen(found, question.names)
    for worker in workers:
        whole.add(worker.ledger)
    for each in gone:
        whole.add_removed(each.counts)
    document = {
        **begun(world),
        "daemon": None if daemon is None else daemon.document(),
        "ledger": whole.document(),
        "removed": removed.summary(gone),
        "workers": entries(found, workers, partial=partial),
        **over.document(),
        "bricks": [brick.document(over_ns=over.length_ns) for brick in totals],
        "categories": categories(totals),
        "stragglers": [finding.document(rows=False) for finding in slow.findings] if slow and slow.current else None,
        "judged_age_ns": None if slow is None else slow.age_ns,
        "diverged": None if differing is None else [numerics.finding(each, called, whole=False) for each in differing],
        "weights": weights,
        "numerics": numerics.summaries(compared, beside, workers),
        "problems": [
            *weighed.problems(weights or ()),
            *numerics.problems(differing or (), called),
            *removed.problems(gone, daemon=daemon is not None),
            *problems(found, workers, daemon, slow, partial=partial),
        ],
    }
    return Answer(document, words)
