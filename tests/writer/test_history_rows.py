"""Rows of a step are recorded with their histories; a history that does not say what the cache holds is unknown."""

from __future__ import annotations

import pytest
from checksums import Left, recorded, recorded_in
from epochs import EPOCH, splitmix64
from faults import Start
from recorded import Site
from token_histories import Step, rows, sums

from brickd.model.row_calls import row_calls
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of

FLAGS = _reader.CHECKED_HISTORY | _reader.CHECKED_STATEFUL | _reader.CHECKED_POSITION
ALL = {"BRICKD_FINGERPRINTS": "all"}
HEAD = """
A, B = brick.History(), brick.History()
def ints(*tokens, kind="i"): return np.array(tokens, kind)
def out(count, width=4): return np.arange(count * width, dtype="f").reshape(count, width)
"""


def run(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    return recorded(worker, prefix, HEAD + source + "\nreported = key()\n", **ALL | environment)


def histories(of: Left) -> list[tuple[int, int, int]]:
    return [(each["output"]["token"] - 1, each["position"], each["valid"]) for each in of.events]


def sites(of: Left) -> list[Site | None]:
    return [of.sites[each["site"]] for each in of.events]


def unknown(of: Left) -> dict[str, int]:
    return dict(row_calls([Worker("w", of.reading, ledger_of(of.reading))]).histories)


# ---- records


def test_each_chosen_row_is_a_record_with_its_input_row_history_and_lineage(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        """
with brick.step(7), brick.layer(2):
    step = brick.rows([A, B], ints(5, 6, 7), [2, 1])
    x, y = out(3), out(3) + 1
    step.checksum("attention", y, input=x, backend="cpu", params=3)
    brick.checksum("attention", y[0], input=[x[0], x[2], y[1], y[2]])
""",
    )
    *found, whole = of.events
    expected = rows([Step([5, 6])], of.reported), rows([Step([7])], of.reported)
    assert histories(of)[:3] == [expected[0][0], expected[1][0], expected[0][1]]  # in the order of positions
    assert [each["flags"] for each in found] == [FLAGS | _reader.CHECKED_STEP] * 3
    assert {(each["step"], each["inputs"], each["relation"]) for each in found} == {(7, 1, 0)}
    assert sites(of) == [("attention", 2, False)] * 4
    outputs, inputs = ([each["tensors"][n]["checksum"] for each in found] for n in (0, 1))
    first, third, second_output, third_output = (tensor["checksum"] for tensor in whole["tensors"][1:])
    assert (inputs[0], inputs[1]) == (first, third)
    assert (outputs[1], outputs[2]) == (third_output, second_output)
    assert {of.reading.name(each["backend"]) for each in found} == {"cpu"}
    assert {each["params"] for each in found} != {0}


def test_padding_is_left_out_if_the_places_of_the_sequences_are_given(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        """
step = brick.rows([A, B], ints(0, 0, 5, 6, 7, 8).reshape(2, 3), [1, 3], at=[2, 3])
y = out(6).reshape(2, 3, 4)
step.checksum("attention", y)
for n in (2, 3, 4, 5): brick.checksum("attention", y.reshape(6, 4)[n])
""",
    )
    found, single = of.events[:4], of.events[4:]
    places = {each["tensors"][0]["checksum"]: n for n, each in zip((2, 3, 4, 5), single, strict=True)}
    assert [places[each["tensors"][0]["checksum"]] for each in found] == [2, 3, 4, 5]
    assert [each["inputs"] for each in found] == [0] * 4
    assert histories(of)[:4] == [rows([Step([5])], of.reported)[0], *rows([Step([6, 7, 8])], of.reported)]


def test_a_copy_is_the_history_of_a_sequence_with_the_same_beginning(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        """
brick.rows([A], ints(5, 6, 7))
B = A.copy()
B.truncate(ints(7))
brick.rows([A], ints(8)).checksum("one", out(1))
brick.rows([B], ints(7, kind="q")).checksum("other", out(1))
reported_tokens = A.tokens, B.tokens
assert reported_tokens == (4, 3)
""",
    )
    key = of.reported
    assert histories(of)[0] == rows([Step([5, 6, 7]), Step([8])], key)[3]
    position, history, lineage = histories(of)[1]
    assert (position, history) == rows([Step([5, 6, 7])], key)[2][:2]
    assert lineage not in {row[2] for row in rows([Step([5, 6, 7]), Step([7])], key)}  # it began at position 2


def test_an_engine_may_copy_objects_that_have_a_history(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        """
import copy
brick.rows([A], ints(5, 6))
for one in (copy.copy(A), copy.deepcopy([A])[0]):
    brick.rows([one], ints(7)).checksum("attention", out(1))
assert A.tokens == 2
""",
    )
    assert histories(of) == [rows([Step([5, 6]), Step([7])], of.reported)[2]] * 2


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            "brick.rows([A], x, shape={1})",
            "a shape must be JSON: numbers, texts, lists and dicts, not a value of type set",
        ),
        ("brick.rows(A, x)", "histories must be a list of History objects, not a value of type brick_agent.History"),
    ],
)
def test_a_wrong_argument_writes_one_line(worker: Start, call: str, error: str) -> None:
    process = worker(f"""
from array import array
A, x = brick.History(), array("i", [5])
for _ in range(2): {call}
""")
    assert process.end() == 0
    assert process.stderr == f"brickd: {error} (BRICKD_STRICT=1 raises an exception)\n"


def test_the_content_of_a_sequence_and_the_shape_of_a_step_count(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        """
for content in (None, "adapter", "adapter", 7):
    for shape in ([1, 2], [1, 3]):
        brick.rows([brick.History(content)], ints(5), shape=shape).checksum("attention", out(1))
""",
    )
    found = [row[1:] for row in histories(of)]
    assert len({history for history, _ in found}) == 3
    assert len({lineage for _, lineage in found}) == 2
    assert found[2:4] == found[4:6]


def test_another_generation_of_the_weights_changes_the_lineage_and_the_params(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        """
for generation in (1, 2):
    brick.weights({"up": x}, generation=generation)
    brick.rows([brick.History()], ints(5)).checksum("attention", out(1))
""",
    )
    found = [each for each in of.events if each["flags"] & _reader.CHECKED_HISTORY]
    (one, other) = ((each["position"], each["valid"], each["params"]) for each in found)
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert one[2] != other[2]


@pytest.mark.parametrize(
    "output",
    [
        "out(4)", "out(2)", "out(3).reshape(3, 2, 2)", "np.zeros(3, 'f')", "object()", "None", "np.zeros((3, 0), 'f')",
    ],
)  # fmt: skip
def test_an_output_without_a_row_for_each_token_is_counted_and_not_recorded(
    worker: Start, prefix: str, output: str
) -> None:
    of = run(worker, prefix, f"brick.rows([A], ints(5, 6, 7)).checksum('attention', {output}, layer=1)")
    assert of.events == []
    assert unknown(of) == {"output": 1}


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (
            "memoryview(bytes(32)).cast('f', [2, 2, 2])",
            "output must have one row for each token: the shape (tokens, columns), not (2, 2, 2)",
        ),
        ("b''", "output must have one row for each token: the shape (tokens, columns), not <class 'bytes'>"),
    ],
)
def test_an_output_without_a_row_for_each_token_raises_in_strict_mode(worker: Start, output: str, error: str) -> None:
    process = worker(
        f"""
from array import array
step = brick.rows([brick.History()], array("i", [5, 6]))
try: step.checksum("attention", {output})
except ValueError as error: report(str(error))
""",
        **ALL,
        BRICKD_STRICT="1",
    )
    assert process.next_report() == f"brick_agent: {error} (BRICKD_STRICT=1)"


def test_rows_of_sequences_that_are_interleaved_in_memory_are_found(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        """
step = brick.rows([A, B], ints(5, 6, 7, 8, 9, 10), [3, 3])
y = np.arange(48, dtype="f").reshape(3, 4, 4).transpose(1, 0, 2)[::2]
step.checksum("attention", y)
for row in y.reshape(6, 4): brick.checksum("row", row)
""",
    )
    checksums = [each["tensors"][0]["checksum"] for each in of.events]
    found, whole = checksums[:-6], checksums[-6:]
    assert len(set(found)) == 4
    assert set(found) < set(whole)


def test_an_input_with_other_rows_is_left_out(worker: Start, prefix: str) -> None:
    of = run(worker, prefix, "brick.rows([A], ints(5, 6)).checksum('attention', out(2), input=out(3))")
    assert [each["inputs"] for each in of.events] == [0, 0]


def test_sensitive_kernels_have_no_rows(worker: Start, prefix: str) -> None:
    of = run(worker, prefix, "for n in (1, 2): brick.rows([A], ints(5)).checksum('lm_head', out(n))")
    assert (of.events, unknown(of)) == ([], {})


def test_rows_leave_half_of_the_ring_free(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        """
for n in range(9):
    brick.rows([A], ints(5)).checksum("attention", out(1))
""",
        BRICKD_EVENTS="64",
    )
    assert len(of.events) == 8  # of 4 slots each
    assert not any(lane["event_dropped"][_reader.KIND_CHECKED] for _, lane, _ in of.reading.lanes)


# ---- the draw


def test_rows_are_drawn_by_their_sums_and_the_epoch(worker: Start, prefix: str) -> None:
    of = recorded_in(
        EPOCH,
        worker,
        prefix,
        HEAD
        + """
for token in range(400):
    brick.rows([A], ints(token)).checksum("attention", out(1))
reported = key()
""",
    )
    turn = splitmix64(EPOCH // 64) >> 32 ^ int(f"{EPOCH:032b}"[::-1], 2)
    totals = sums(range(400), of.reported)
    drawn = [position for position, total in enumerate(totals) if (total >> 32 ^ turn) < 2**32 // 64 * 2]
    assert [position for position, *_ in histories(of)] == drawn
    assert 3 < len(drawn) < 30


@pytest.mark.parametrize(("rate", "rows_"), [("off", 0), ("all", 4), ("1/2", 4)])
def test_the_rate_of_fingerprints_is_doubled_for_rows(worker: Start, prefix: str, rate: str, rows_: int) -> None:
    of = run(worker, prefix, "brick.rows([A], ints(*range(9))).checksum('attention', out(9))", BRICKD_FINGERPRINTS=rate)
    assert len(of.events) == rows_


# ---- unknown histories


@pytest.mark.parametrize(
    "reason", ["evicted", "reordered", "quantized", "edited", "beam_search", "drafts", "dynamic_int8", "capacity"]
)
def test_a_lost_history_is_not_recorded_and_its_steps_are_counted(worker: Start, prefix: str, reason: str) -> None:
    of = run(
        worker,
        prefix,
        f"""
A.lose({reason!r})
A.lose("later")
for _ in range(3):
    brick.rows([A, B], ints(5, 6)).checksum("attention", out(2))
    C = A.copy()
brick.rows([C], ints(5)).checksum("attention", out(1))
""",
    )
    assert [position for position, *_ in histories(of)] == [0, 1, 2]
    assert unknown(of) == {reason: 4}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("brick.disable(); brick.rows([A], ints(5)); brick.enable(); brick.rows([A], ints(6))", "unseen"),
        ("brick.rows([A], ints(5, 6), [3])", "unseen"),
        ("brick.rows([A], ints(5, 6), [-1])", "unseen"),
        ("brick.rows([A], ints(5, 6), at=[3])", "unseen"),
        ("brick.rows([A, A, A], ints(5, 6))", "unseen"),
        ("A.truncate(ints(5)); brick.rows([A], ints(5))", "unseen"),
        ("A = brick.History(content=1.5); brick.rows([A], ints(5))", "unseen"),
        ("brick.rows([A], np.zeros(2, 'f')); brick.rows([A], ints(5))", "unreadable"),
        ("brick.rows([A], ints(5, 6, 7)[::2]); brick.rows([A], ints(5))", "unreadable"),
        ("brick.rows([A], [5, 6]); brick.rows([A], ints(5))", "unreadable"),
        ("A.truncate('last'); brick.rows([A], ints(5))", "unreadable"),
        ("brick.rows([A], ints(5, 6), [1, 1]); brick.rows([A], ints(5))", "arguments"),
        ("brick.rows([A], ints(5, 6), 2); brick.rows([A], ints(5))", "arguments"),
        ("brick.rows(A, ints(5, 6)); brick.rows([A], ints(5))", "arguments"),
        ("brick.rows([A], ints(5, 6), shape={'scale': np.float32(1.5)}); brick.rows([A], ints(5))", "arguments"),
    ],
)
def test_a_history_that_did_not_get_all_tokens_is_unknown(worker: Start, prefix: str, source: str, reason: str) -> None:
    of = run(worker, prefix, f"{source}\nbrick.rows([A], ints(7)).checksum('attention', out(1))")
    assert of.events == []
    assert list(unknown(of)) == [reason]


def test_a_list_that_has_other_objects_makes_its_histories_unknown(worker: Start, prefix: str) -> None:
    of = run(
        worker,
        prefix,
        "assert not brick.rows([A, 3], ints(5, 6)); brick.rows(3, ints(5)); brick.rows([A, B], ints(5, 6))",
    )
    assert (of.events, unknown(of)) == ([], {"arguments": 1})


@pytest.mark.parametrize(
    "call", ["brick.rows([A])", "brick.rows([A], ints(5), shapes=1)", "brick.rows([A], ints(5)).checksum('x')"]
)
def test_only_unknown_arguments_raise(worker: Start, prefix: str, call: str) -> None:
    of = recorded(worker, prefix, f"brick.init(){HEAD}try: {call}\nexcept TypeError as error: reported = str(error)")
    assert of.reported.startswith("brick_agent: ")
