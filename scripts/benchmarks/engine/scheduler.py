"""Which tokens of which requests the next step computes: continuous batching with chunked prefill and preemption.

Owns: the settings of a replica; the generations that wait or run, and their blocks; what is computed; the history and
the lineage of each row. Must not know: tensors, models, brickd. Invariants: a step is only prefill or only decode, and
they take turns if both wait; if a generation needs room, the generation that was admitted last gives up its blocks and
is computed again later; nothing depends on time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.engine.prefix_cache import BLOCK, PrefixCache, keys
from benchmarks.engine.traffic import END, Request, longest
from benchmarks.engine.truth import NOTHING, Lineage, chained

_PREFILLS_MAX = 4  # generations in a step of prefill


@dataclass(frozen=True)
class Settings:
    """What a replica serves, and how.

    Attributes:
        kind: the architecture and its dtype, one of `model.KINDS`.
        seed: the seed of the weights, the system prompt and, unless `traffic` is given, of all requests.
        system: the length of the system prompt.
        batch: the largest number of requests of a step.
        chunk: the largest number of tokens of a request in a step of prefill.
        threads: the number of torch's threads.
        load: the share of the engine's capacity that is used on average.
        traffic: the seed of the requests.
    """

    kind: str
    seed: int
    system: int = 20
    batch: int = 8
    chunk: int = 32
    threads: int = 1
    load: float = 0.5
    traffic: int | None = None

    @property
    def blocks(self) -> int:
        """The blocks of the cache: enough for the longest request, too few for a batch of long ones."""
        return 2 + -(-longest(self.system) // BLOCK) + 3 * self.batch


@dataclass(eq=False)
class Generation:
    """A request that is answered.

    Attributes:
        tokens: the tokens of the prompt and of the answer so far.
        histories: for each token, a digest of all tokens up to it.
        computed: the number of tokens whose keys and values are in `blocks`.
        lineage: how they were computed.
    """

    request: Request
    tokens: list[int]
    histories: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    lineage: Lineage = NOTHING

    @property
    def left(self) -> int:
        """The number of tokens that are not computed yet."""
        return len(self.tokens) - self.computed

    def append(self, token: int) -> None:
        """Add a token of the answer."""
        self.histories.append(chained(self.histories[-1] if self.histories else 0, len(self.histories), token))
        self.tokens.append(token)


class Slice(NamedTuple):
    """Some tokens of a generation that one step computes. If no token of the generation is left after them, the last of
    them gives a new token.
    """

    generation: Generation
    start: int
    length: int


class Shape(NamedTuple):
    """The shape of a step: rows of the batch, tokens of a row, keys of a row."""

    rows: int
    tokens: int
    keys: int


@dataclass
class Counts:
    """What happened so far."""

    finished: int = 0
    tokens: int = 0
    reused: int = 0
    preempted: int = 0


class Scheduler:
    """The generations of a replica."""

    def __init__(self, *, blocks: int, batch: int, chunk: int) -> None:
        self._cache: PrefixCache[Lineage] = PrefixCache(blocks)
        self._batch, self._chunk = batch, chunk
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []  # in the order in which they were admitted
        self._decoded = False  # whether the last step was a decode
        self.counts = Counts()

    @property
    def waiting(self) -> int:
        """The number of generations that wait."""
        return len(self._waiting)

    @property
    def running(self) -> Sequence[Generation]:
        """The generations with blocks."""
        return self._running

    def add(self, request: Request) -> None:
        """Let a request wait."""
        generation = Generation(request, [])
        for token in request.prompt:
            generation.append(token)
        self._waiting.append(generation)

    def plan(self) -> list[Slice]:
        """Return the next step. It is empty if there is nothing to do."""
        self._admit()
        prefills = [each for each in self._running if each.left > 1]
        decodes = [each for each in self._running if each.left == 1]
        prefill = bool(prefills) and (self._decoded or not decodes)
        slices = []
        for generation in prefills[:_PREFILLS_MAX] if prefill else decodes:
            count = min(generation.left, self._chunk) if prefill else 1
            # An earlier request may have taken the room of this one; a later request never does.
            if generation in self._running and self._has_room(generation, generation.computed + count):
                slices.append(Slice(generation, generation.computed, count))
        self._decoded = not prefill
        return slices

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._batch:
            generation = self._waiting[0]
            generation.blocks = self._cache.reuse(generation.tokens)
            generation.computed = len(generation.blocks) * BLOCK
            if self._cache.free * BLOCK < min(generation.left, self._chunk) and self._running:
                self._release(generation)
                return
            if generation.blocks:
                generation.lineage = self._cache.note(generation.blocks[-1]) or NOTHING
                self.counts.reused += generation.computed
            self._running.append(self._waiting.popleft())

    def _has_room(self, generation: Generation, tokens: int) -> bool:
        """Take blocks for a request's first tokens; preempt other requests, or this one."""
        while len(generation.blocks) * BLOCK < tokens:
            block = self._cache.take()
            if block is not None:
                generation.blocks.append(block)
                continue
            last = self._running.pop()
            self._release(last)
            self._waiting.appendleft(last)
            self.counts.preempted += 1
            if last is generation:
                return False
        return True

    def _release(self, generation: Generation) -> None:
        self._cache.release(generation.blocks)
        generation.blocks, generation.computed, generation.lineage = [], 0, NOTHING

    def advance(self, slices: Sequence[Slice], shape: Shape, sampled: Sequence[int]) -> list[Generation]:
        """Note a computed step with one new token for each slice; return the finished generations."""
        finished = []
        for each, token in zip(slices, sampled, strict=True):
            generation = each.generation
            generation.lineage = generation.lineage.after(each.start, each.length, shape)
            self._publish(generation, each.start, each.start + each.length)
            generation.computed = each.start + each.length
            if generation.left:
                continue
            generation.append(token)
            answer = len(generation.tokens) - len(generation.request.prompt)
            if token == END or answer == generation.request.answer_max:
                self._running.remove(generation)
                self._release(generation)
                self.counts.finished += 1
                self.counts.tokens += answer
                finished.append(generation)
        return finished

    def _publish(self, generation: Generation, start: int, end: int) -> None:
        """Let other requests reuse the blocks that these tokens filled."""
        if start // BLOCK == end // BLOCK:
            return
        for number, key in enumerate(keys(generation.tokens[:end])):
            if number >= start // BLOCK:
                self._cache.publish(generation.blocks[number], key, generation.lineage)
