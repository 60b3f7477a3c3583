"""The view `tree`: the call tree over all workers.

Owns: the schema of its document. Must not know: how trees are merged, screens.
"""

from __future__ import annotations

from dataclasses import dataclass

from brickd.tree import tree
from brickd.views.answer import Answer, begun, chosen
from brickd.views.parameter import Number, Switch, Whole
from brickd.views.question import ABOUT_WORKERS, Question, given
from brickd.world import World


@dataclass(frozen=True)
class TreeQuestion(Question):
    """Whose tree, and how much of it."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, ())
    layers: bool = given(Switch("Keep bricks apart that differ in their layer alone."), False)
    depth: int | None = given(Whole(1, None, "Show so many levels; what is below is counted.", metavar="N"), None)
    min: float = given(
        Number(0, 100, "Leave out what took less of all that was recorded; it is counted.", metavar="PERCENT"), 0.0
    )


def answer(world: World, question: TreeQuestion) -> Answer:
    """Merge the workers' trees."""
    _, workers, words = chosen(world, question.names)
    merged = tree(workers, layers=question.layers, depth=question.depth, least_percent=question.min)
    document = {
        **begun(world),
        "layers": question.layers,
        "workers": len(workers),
        "recorded_ns": round(merged.recorded_ns),
        "nodes": [node.document() for node in merged.nodes],
        "hidden_nodes": merged.left.nodes,
        "hidden_self_ns": round(merged.left.self_ns),
    }
    return Answer(document, words)
