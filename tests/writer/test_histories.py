"""The history of a sequence says which tokens filled its cache, and its lineage says in which steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from c_calls import c_calls
from conftest import reading
from epochs import EPOCH, give
from faults import Compile, Start
from hypothesis import given
from hypothesis import strategies as st
from token_histories import Step, lineages, rows, sums

KEY = 0x00112233445566778899AABBCCDDEEFF
OTHER_KEY = KEY ^ 1
Row = tuple[int, int, int]  # position, history, lineage
# Answers questions about histories. A question is a list of calls, each with its arguments.
ANSWERS = """
import json
RATE = 1 << 26
def extend(h, tokens, shape, rate, wide, at=0, rows=None):
    of = HistoryRows()
    held = ((ctypes.c_int64 if wide else ctypes.c_int32) * len(tokens))(*tokens)
    w.brick_history_begin(None, shape, at + len(tokens) if rows is None else rows, rate, byref(of))
    w.brick_history_extend(byref(of), byref(h), ctypes.addressof(held), 5 if wide else 4, len(tokens), at)
    w.brick_history_end(byref(of))
    return [[r.position, r.history, r.lineage, r.at] for r in of.row[:of.count]]
def truncate(h, tokens, wide):
    held = ((ctypes.c_int64 if wide else ctypes.c_int32) * len(tokens))(*tokens)
    w.brick_history_truncate(byref(h), ctypes.addressof(held), 5 if wide else 4, len(tokens))
w.brick_init(None)
pause()
while line := sys.stdin.readline():
    content, calls = json.loads(line)
    h, found = History(content=content), []
    for call, *given in calls:
        found.append(dict(extend=extend, truncate=truncate)[call](h, *given))
    report([found, h.sum, h.lineage, h.tokens, h.unknown])
"""


class Answers:
    """A worker that computes histories with the writer's functions."""

    def __init__(self, worker: Start, compiled: Compile, prefix: str, key: int, file: Any) -> None:
        file.write_text(f"{key:032x}fedcba9876543210\n")
        file.chmod(0o600)
        self._worker = worker(
            c_calls(compiled) + ANSWERS, BRICKD_KEY_FILE=str(file), BRICKD_SHM_PREFIX=prefix, BRICKD_FINGERPRINTS="all"
        )
        self._worker.paused()
        give(reading(prefix).file, EPOCH)
        self._worker.go()

    def ask(self, *calls: Sequence[Any], content: int = 0) -> list[Any]:
        stdin = self._worker.process.stdin
        assert stdin is not None
        stdin.write(json.dumps([content, calls]).encode() + b"\n")
        stdin.flush()
        found: list[Any] = self._worker.next_report()
        return found

    def rows(self, steps: Sequence[Step], content: int = 0) -> list[Row]:
        """The rows of sequences with at most four tokens per step, all of which are recorded."""
        found, *_ = self.ask(*(extended(step) for step in steps), content=content)
        return [(position, history, lineage) for of in found for position, history, lineage, _ in of]


def extended(step: Step, *, wide: bool = False, rate: int = 1 << 26) -> list[Any]:
    return ["extend", list(step.tokens), step.shape, rate, wide]


@pytest.fixture
def answers(worker: Start, compiled: Compile, prefix: str, tmp_path: Any) -> Answers:
    return Answers(worker, compiled, f"{prefix}a", KEY, tmp_path / "key")


TOKEN = st.integers(-(2**31), 2**31 - 1)
NUMBER = st.integers(0, 2**64 - 1)
STEPS = st.lists(st.builds(Step, st.lists(TOKEN, max_size=4), NUMBER), min_size=1, max_size=6)
SOME = STEPS.filter(lambda steps: any(step.tokens for step in steps))


# ---- the definition


def test_rows_have_the_defined_histories_and_lineages(answers: Answers) -> None:
    @given(STEPS, NUMBER)
    def check(steps: list[Step], content: int) -> None:
        assert answers.rows(steps, content) == rows(steps, KEY, content)

    check()


def test_tokens_of_32_and_64_bits_have_equal_histories(answers: Answers) -> None:
    @given(STEPS)
    def check(steps: list[Step]) -> None:
        narrow, wide = (answers.ask(*(extended(step, wide=wide) for step in steps)) for wide in (False, True))
        assert narrow == wide

    check()


def test_another_key_changes_every_history_and_lineage(
    answers: Answers, worker: Start, compiled: Compile, prefix: str, tmp_path: Any
) -> None:
    others = Answers(worker, compiled, f"{prefix}b", OTHER_KEY, tmp_path / "other")

    @given(SOME)
    def check(steps: list[Step]) -> None:
        for one, other in zip(answers.rows(steps), others.rows(steps), strict=True):
            assert one[1] != other[1]
            assert one[2] != other[2]

    check()


# ---- what changes a history


@given(SOME, st.data())
def check_another_token(answers: Answers, steps: list[Step], data: st.DataObject) -> None:
    at = data.draw(st.sampled_from([n for n, step in enumerate(steps) if step.tokens]))
    tokens = list(steps[at].tokens)
    tokens[0] = data.draw(TOKEN.filter(lambda token: token != tokens[0]))
    first = sum(len(step.tokens) for step in steps[:at])
    changed = [*steps[:at], Step(tokens, steps[at].shape), *steps[at + 1 :]]
    for one, other in zip(answers.rows(steps), answers.rows(changed), strict=True):
        assert (one[1] == other[1]) == (one[0] < first)  # all rows from this token on
        assert one[2] == other[2]


def test_another_token_changes_the_histories_from_this_token_on_and_no_lineage(answers: Answers) -> None:
    check_another_token(answers)


def test_the_order_of_tokens_changes_the_history(answers: Answers) -> None:
    @given(TOKEN, TOKEN)
    def check(one: int, other: int) -> None:
        (_, there), (_, back) = (answers.rows([Step(tokens)]) for tokens in ([one, other], [other, one]))
        assert (there[1] == back[1]) == (one == other)

    check()


def test_another_content_changes_every_history_and_no_lineage(answers: Answers) -> None:
    @given(SOME, NUMBER, NUMBER)
    def check(steps: list[Step], one: int, other: int) -> None:
        for a, b in zip(answers.rows(steps, one), answers.rows(steps, other), strict=True):
            assert (a[1] == b[1]) == (one == other)
            assert a[2] == b[2]

    check()


# ---- what changes a lineage


def test_the_borders_of_steps_change_lineages_and_no_history(answers: Answers) -> None:
    @given(st.lists(TOKEN, min_size=2, max_size=4))
    def check(tokens: list[int]) -> None:
        whole, parts = answers.rows([Step(tokens)]), answers.rows([Step(tokens[:1]), Step(tokens[1:])])
        assert [row[:2] for row in whole] == [row[:2] for row in parts]
        assert not {row[2] for row in whole} & {row[2] for row in parts}

    check()


def test_another_shape_changes_the_lineage_of_this_step_and_of_all_later_ones(answers: Answers) -> None:
    @given(st.lists(TOKEN, min_size=3, max_size=3), NUMBER, NUMBER)
    def check(tokens: list[int], one: int, other: int) -> None:
        found = (
            answers.rows([Step([tokens[0]]), Step([tokens[1]], shape), Step([tokens[2]])]) for shape in (one, other)
        )
        first, *later = zip(*found, strict=True)
        assert first[0] == first[1]
        assert all((a[2] == b[2]) == (one == other) and a[:2] == b[:2] for a, b in later)

    check()


# ---- truncation


def test_a_truncated_history_continues_as_if_the_tokens_had_not_been_there(answers: Answers) -> None:
    @given(st.lists(TOKEN, min_size=1, max_size=9), st.lists(TOKEN, max_size=9), TOKEN, NUMBER, st.booleans())
    def check(kept: list[int], dropped: list[int], last: int, content: int, wide: bool) -> None:
        _, total, _, tokens, unknown = answers.ask(
            extended(Step([*kept, *dropped]), wide=wide),
            ["truncate", dropped, wide],
            extended(Step([last]), wide=wide),
            content=content,
        )
        assert (total, tokens, unknown) == (sums([*kept, last], KEY, content)[-1], len(kept) + 1, 0)

    check()


def test_a_truncation_keeps_the_step_that_filled_the_cache_in_the_lineage(answers: Answers) -> None:
    cut = answers.ask(extended(Step([1, 2, 3])), ["truncate", [3], False])
    assert cut[2] == answers.ask(extended(Step([1, 2, 3])))[2] != answers.ask(extended(Step([1, 2])))[2]


def test_all_tokens_can_be_removed(answers: Answers) -> None:
    cut = [extended(Step([1, 2])), ["truncate", [1, 2], False], extended(Step([3]))]
    _, total, lineage, tokens, unknown = answers.ask(*cut)
    assert (total, tokens, unknown) == (sums([3], KEY, 0)[-1], 1, 0)
    assert [lineage] == lineages([Step([3])]), "a preempted sequence that is computed again is like a new one"


def test_more_tokens_than_there_are_cannot_be_removed(answers: Answers) -> None:
    *_, tokens, unknown = answers.ask(extended(Step([1])), ["truncate", [1, 2], False])
    assert (tokens, unknown) == (1, 2**32 - 1)


# ---- the choice of rows


def test_the_rows_with_the_lowest_positions_are_recorded(answers: Answers) -> None:
    (chosen,), *_ = answers.ask(extended(Step(range(9))))
    assert [row[0] for row in chosen] == [0, 1, 2, 3]


def test_rows_outside_of_the_tensors_are_not_chosen(answers: Answers) -> None:
    step = extended(Step([1, 2]))
    (fits,), *_ = answers.ask([*step, 3, 5])
    (beyond,), _, _, tokens, unknown = answers.ask([*step, 3, 4])
    assert [row[3] for row in fits] == [3, 4]
    assert (beyond, tokens, unknown) == ([], 2, 0)
