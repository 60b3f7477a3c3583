"""Rounds of canaries: which worker gets which order, and what it answered.

Owns: the queue of orders, deadlines, the assembly of answers. Must not know: how results are compared, HTTP, files.
Invariants: of a service, one worker at a time has an order; a worker gets each canary of a round once; an answer counts
only if its order is the one that this worker has now; the memory for answers is bounded, whatever workers send. Any
thread may call any method.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from brickd.analysis.numerics.canary_results import CanaryAnswer, decoded
from brickd.base.units import SECOND
from brickd.daemon.attachment import Attached
from brickd.errors import SegmentRefused
from brickd.model.canary_definitions import CanaryDefinition
from brickd.model.kernel_sources.assembly import PIECE, Making
from brickd.shm import _reader

ROUNDS_MAX = 16
BEGINS_NS = 10 * SECOND  # a worker that does not begin in this time takes no orders
ENDS_NS = 660 * SECOND  # the agent itself gives up after 600 s
_MAKING_MAX = 4  # answers of one worker that are incomplete
_PART_BITS = 30
_PIECES_MAX = -(-_reader.CANARY_MAX // PIECE)


@dataclass(slots=True)
class CanaryTurn:
    """One canary in one worker. `answer` is the last answer of the worker, or what the daemon found instead."""

    uuid: str
    worker: str
    service: str
    canary: CanaryDefinition
    order: int = 0  # 0: the worker has no order yet
    ordered_ns: int = 0
    answer: CanaryAnswer | None = None

    @property
    def is_over(self) -> bool:
        """Whether no other answer is expected."""
        return self.answer is not None and self.answer.end != "running"

    def fail(self, end: str, reason: str) -> None:
        """Note that there will be no answer."""
        self.answer = CanaryAnswer(self.order, self.canary.name, end, reason)


class CanaryRound(NamedTuple):
    """The canaries of one order of the user."""

    number: int
    turns: list[CanaryTurn]

    @property
    def is_over(self) -> bool:
        """Whether all turns are over."""
        return all(each.is_over for each in self.turns)


@dataclass(slots=True)
class CanaryAnswers:
    """The incomplete answers of one worker."""

    making: dict[int, Making] = field(default_factory=dict)

    def take(self, uuid: str, hash_: int, piece: int, text: bytes) -> bytes | None:
        """Add pieces; return a complete answer. Raise a ValueError if the pieces are impossible."""
        part, number = piece >> _PART_BITS, piece & (1 << _PART_BITS) - 1
        if part not in (_reader.SOURCE_TEXT, _reader.SOURCE_END) or number + len(text) // PIECE > _PIECES_MAX:
            raise ValueError("an impossible piece")
        making = self.making.setdefault(hash_, Making(hash_, uuid))
        if len(self.making) > _MAKING_MAX:
            del self.making[next(iter(self.making))]
        if not making.put(uuid, piece, text):
            raise ValueError("an impossible piece")
        if (source := making.source(uuid)) is None:
            return None
        del self.making[hash_]
        return source.text


class CanaryRounds:
    """The rounds of a daemon. `ignored` counts answers that were invalid, or that no order asked for."""

    def __init__(self) -> None:
        self.ignored = 0
        self._rounds: dict[int, CanaryRound] = {}
        self._answers: dict[str, CanaryAnswers] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def begin(self, workers: Sequence[Attached], canaries: Sequence[CanaryDefinition]) -> CanaryRound:
        """Order canaries from workers; each worker has its turn when the others of its service are done."""
        turns = [CanaryTurn(each.uuid, each.name, each.service, canary) for canary in canaries for each in workers]
        with self._lock:
            made = CanaryRound(next(self._numbers), turns)
            self._rounds[made.number] = made
            while len(self._rounds) > ROUNDS_MAX:
                self._rounds.pop(next(iter(self._rounds)))
        return made

    @property
    def incomplete_bytes(self) -> int:
        """The memory that incomplete answers take."""
        with self._lock:
            return sum(making.size for each in self._answers.values() for making in each.making.values())

    def round(self, number: int) -> CanaryRound | None:
        """Return a round; None if it is unknown, or too old."""
        with self._lock:
            return self._rounds.get(number)

    def move(self, workers: Callable[[], Iterable[Attached]], now_ns: int) -> None:
        """Give an order to each worker whose turn it is, and give up those that do not answer."""
        with self._lock:
            left = [turn for each in self._rounds.values() for turn in each.turns if not turn.is_over]
            if not left:
                self._answers.clear()
                return
            here = {each.uuid: each for each in workers() if each.heir is None}
            busy: set[str] = set()
            for turn in left:  # of a service, the first one may have an order, and the others have none
                if turn.service not in busy:
                    _advance(turn, here.get(turn.uuid), now_ns)
                    if not turn.is_over:
                        busy.add(turn.service)

    def take(self, uuid: str, pieces: Iterable[tuple[int, int, bytes]]) -> None:
        """Take the pieces of answers that a worker sent."""
        with self._lock:
            turns = [turn for each in self._rounds.values() for turn in each.turns]
            turn = next((each for each in turns if each.uuid == uuid and each.order and not each.is_over), None)
            for piece in pieces:
                try:
                    if turn is None:
                        raise ValueError("no order")
                    text = self._answers.setdefault(uuid, CanaryAnswers()).take(uuid, *piece)
                    if text is None:
                        continue
                    answer = decoded(text)
                    if answer.order != turn.order:
                        raise ValueError("another order")
                    if not turn.is_over:
                        turn.answer = answer
                except ValueError:
                    self.ignored += 1


def _advance(turn: CanaryTurn, worker: Attached | None, now_ns: int) -> None:
    if worker is None:
        turn.fail("gone", "the worker ended")
    elif not worker.segment.has_canaries:
        turn.fail("refused", "old: its brick-agent takes no orders for canaries")
    elif not turn.order:
        try:
            turn.order, turn.ordered_ns = worker.segment.order_canary(turn.canary.digest), now_ns
        except SegmentRefused as error:
            turn.fail("refused", f"segment: {error.reason}")
    elif turn.answer is None and now_ns - turn.ordered_ns > BEGINS_NS:
        turn.fail("silent", "it does not answer: call brick.canaries(model, orders=True) in the program")
    elif now_ns - turn.ordered_ns > ENDS_NS:
        turn.fail("silent", f"it began, but did not end within {ENDS_NS // SECOND} s")
