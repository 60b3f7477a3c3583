"""The view `tree`: the call tree over all workers, with its kernels, transfers and needs.

Owns: the first keys of the document. Must not know: how trees are merged and encoded, screens.
"""

from __future__ import annotations

from brickd.datasources.world import World
from brickd.model.calltree.tree import tree
from brickd.query.queries import TreeQuery
from brickd.views.common import Answer, begun, chosen, counted, day_of


def answer(world: World, query: TreeQuery) -> Answer:
    """Merge the workers' trees."""
    of_day = day_of(world, query)
    them = chosen(world, query.names, of_day)
    over = counted(world, them, query, of_day)
    merged = tree(over.workers, layers=query.layers, depth=query.depth, least_percent=query.min)
    document = {
        **begun(world),
        **over.document(),
        "layers": query.layers,
        "workers": len(them.workers) if over.many is None else over.many,
        **merged.document(windowed=over.length_ns is not None),
    }
    return Answer(document, them.words + over.words)
