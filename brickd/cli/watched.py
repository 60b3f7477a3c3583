"""The view `hang` where no daemon watches.

Owns: that time passes between the two looks. Must not know: how a verdict comes about, screens.
"""

from __future__ import annotations

from brickd.cli.waiting import watch
from brickd.questions.hang import HangQuestion
from brickd.views import hang
from brickd.views.answer import Answer
from brickd.world import World


def answer(world: World, question: HangQuestion) -> Answer:
    """Look, watch, and look again; where nobody is there is nothing to wait for."""
    before = hang.look(world, question)
    if before.workers:
        watch(question.watch)
    return hang.answer(world, question, before)
