"""Requests with a chat template, drawn from a seed; each replica gets different ones.

Owns: token numbers of the template, prompts, lengths, when a request arrives. Must not know: torch, batches, brickd.
Invariants: the same seed and replica give the same requests at the same steps; only the template and the system prompt
are equal in two requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

BEGIN, HEADER, HEADER_END, SYSTEM, USER, ASSISTANT, END = range(1, 8)
SYSTEM_LENGTHS = (0, 20, 300)
_CONTENT = 8  # tokens from this number on are contents; smaller numbers belong to the template
_CONTENT_LENGTHS, _ANSWER_LENGTHS = (4, 60), (4, 24)
_TEMPLATE_MAX = 12
_SEEDS = 1 << 31
_ANSWER_STEPS = 16  # how many steps an answer takes on average, including the prefill


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        number: its index in the replica.
        prompt: its tokens, with the template.
        answer_max: the largest number of tokens of the answer.
        seed: the seed of the sampled tokens.
    """

    number: int
    prompt: tuple[int, ...]
    answer_max: int
    seed: int


class Traffic:
    """All requests to one replica, in order."""

    def __init__(
        self,
        seed: int,
        replica: int,
        *,
        vocabulary: int,
        system: int,
        batch: int,
        load: float,
        requests: int | None = None,
    ) -> None:
        """Draw the system prompt.

        Args:
            seed: the service's seed: all replicas have the same system prompt.
            replica: its number.
            vocabulary: the number of tokens.
            system: the length of the system prompt.
            batch: the largest batch of the engine.
            load: the share of the engine's capacity that is used on average.
            requests: the seed of the requests; if None, it is `seed`.
        """
        common = Random(f"system prompt {seed}")
        self._vocabulary, self._rate = vocabulary, load * batch / _ANSWER_STEPS
        said = (*_header(SYSTEM), *_content(common, vocabulary, system), END) if system else ()
        self._beginning = (BEGIN, *said, *_header(USER))
        self._random = Random(f"requests {seed if requests is None else requests} {replica}")
        self._number = 0

    def arrivals(self) -> Iterator[Request]:
        """The requests that arrive at the next step."""
        left = self._rate
        while left > 0:
            if self._random.random() < left:
                yield self._request()
            left -= 1

    def _request(self) -> Request:
        content = _content(self._random, self._vocabulary, self._random.randint(*_CONTENT_LENGTHS))
        prompt = (*self._beginning, *content, END, *_header(ASSISTANT))
        self._number += 1
        return Request(self._number, prompt, self._random.randint(*_ANSWER_LENGTHS), self._random.randrange(_SEEDS))


def longest(system: int) -> int:
    """The number of tokens of the longest request together with its answer."""
    return system + _TEMPLATE_MAX + _CONTENT_LENGTHS[1] + _ANSWER_LENGTHS[1]


def _header(role: int) -> tuple[int, ...]:
    return (HEADER, role, HEADER_END)


def _content(random: Random, vocabulary: int, length: int) -> tuple[int, ...]:
    return tuple(random.randrange(_CONTENT, vocabulary) for _ in range(length))
