"""The view `hang` of a recording.

Owns: which two looks are compared: the last two snapshots. Must not know: how a verdict comes about, screens.
"""

from __future__ import annotations

from dataclasses import replace

from brickd import units
from brickd.questions.hang import HangQuestion
from brickd.recording.world import Recorded
from brickd.views import hang
from brickd.views.answer import Answer


def answer(world: Recorded, question: HangQuestion) -> Answer:
    """Look at what was there before, and at what was there then."""
    earlier = world.before()
    said = hang.answer(world, question, hang.look(earlier, question))
    apart = units.duration(world.now_ns() - earlier.now_ns())
    return replace(said, words=(f"the last two snapshots are compared, {apart} apart", *said.words))
