"""Redacted recordings show which tensors and which requests are equal, and nothing else about them."""

from __future__ import annotations

import functools
import json
import random
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dtypes
import numpy as np
import pytest
from checked_record import CheckedRecord, Tensor
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from rings import SLOT, rings
from running import Running, running
from tapes import read
from test_record import STILL, record, recording
from test_recorded_checked import Tape
from test_recording_files import chunks
from verbs import brickd, document, started
from watched_weights import SCANS

from brickd.analysis.weights.contents import content
from brickd.model.event_log import Event
from brickd.recording import body_codec, redact
from brickd.recording.checksum_records import Checked
from brickd.recording.chunks import open_recording
from brickd.recording.chunks import records as records_of
from brickd.recording.file_index import FileIndex
from brickd.recording.replay import opened
from brickd.shm import _reader, records

SPAN, STEP, DEFER, FINALIZE = _reader.KIND_SPAN, _reader.KIND_STEP, _reader.KIND_DEFER, _reader.KIND_FINALIZE
MEASURED, CHECKED = _reader.KIND_MEASURED, _reader.KIND_CHECKED
SECRETS = {
    "span": {"step": "step"},
    "defer": {"step": "step", "stream": "stream"},
    "finalize": {"stream": "stream"},
    "measured": {},
    "checked": {"step": "step", "position": "position", "params": "params"},
    "output": {},
    "tensor_sums": {"checksum": "checksum"},
    "tensor_sketch": {},
}
LEFT = {
    "span": ("sequence", "path", "slots", "kind", "start", "duration", "child", "elements", "bytes"),
    "defer": ("sequence", "path", "slots", "kind", "start", "id", "elements", "bytes"),
    "finalize": ("sequence", "every", "slots", "kind", "ticks"),
    "measured": ("sequence", "slots", "kind", "id", "elapsed_ns"),
    "checked": ("sequence", "site", "slots", "kind", "ticks", "valid", "backend", "of", "relation", "inputs", "flags"),
    "output": ("dims", "shape"),
    "tensor_sums": ("elements", "nan", "pos_inf", "neg_inf", "shape", "dtype"),
    "tensor_sketch": (),
}

UNLESS_REDACTED = {"output": ("token",)}


@dataclass
class Made:
    """Slots with made-up content, and the kind of each slot. In the fields that redaction preserves, the values are
    small; all other fields have random words.
    """

    seed: int
    slots: bytearray = field(default_factory=bytearray)
    # the kind of each slot; None if no field of the slot is preserved
    kinds: list[str | None] = field(default_factory=list)
    secrets: set[bytes] = field(default_factory=set)
    sequence: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._words = [self._random.randbytes(8) for _ in range(6)]  # words that are used repeatedly

    def _secret(self) -> bytes:
        word = self._random.choice(self._words) if self._random.random() < 0.5 else self._random.randbytes(8)
        self.secrets.add(word)
        return word

    def slot(self, record: str, **values: int) -> None:
        row = np.frombuffer(bytearray(b"".join(self._secret() for _ in range(8))), dtypes.dtype(record))
        for name in LEFT[record]:
            row[name] = values.get(name, self._random.randint(0, 9))
        for name in SECRETS[record]:
            row[name] = values.get(name, row[name]) if self._random.random() < 0.8 else 0
        self.slots += row.tobytes()
        self.kinds.append(record)

    def _head(self, record: str, kind: int, slots: int = 1, **values: int) -> None:
        self.sequence += 1
        self.slot(record, sequence=self.sequence, slots=slots, kind=kind, **values)

    def spans(self) -> None:
        self._head("span", self._random.choice([SPAN, STEP]))

    def one(self) -> None:
        kind, record = self._random.choice([(DEFER, "defer"), (FINALIZE, "finalize"), (MEASURED, "measured")])
        self._head(record, kind, **({"every": self._random.randint(0, 1)} if kind == FINALIZE else {}))

    def checked(self) -> None:
        inputs = self._random.choice([0, 0, 1, 8])
        flags = self._random.choice([0, 1, 2, 3, 7])
        self._head("checked", CHECKED, 4 + 2 * inputs, inputs=inputs, flags=flags | 1, relation=flags % 4)
        self.slot("output")
        for _ in range(1 + inputs):
            self.slot("tensor_sums")
            self.slot("tensor_sketch")

    def strange(self, slots: int = 0, kind: int = 0) -> None:
        """Add a record of an unknown kind or with a wrong number of slots; without `slots`, any of these."""
        self.sequence += 1
        if not slots:
            slots, kind = self._random.choice([(1, 99), (7, 99), (40, 6), (4, DEFER), (5, 6), (1, 0), (1, 10)])
        head = self._secret() + self._random.randbytes(4) + struct.pack("<HH", slots, kind)
        rest = b"".join(self._secret() for _ in range(8 * slots - 2))
        self.slots += head + rest
        self.kinds += [None] * slots


@dataclass
class Keyed:
    """Checks that equal words get equal replacements, and different words get different ones."""

    of: dict[tuple[str, int], int] = field(default_factory=dict)

    def see(self, what: str, before: int, after: int) -> None:
        assert (before == 0) == (after == 0)
        assert before == 0 or before != after
        assert self.of.setdefault((what, before), after) == after

    def apart(self) -> None:
        made = [after for (_, before), after in self.of.items() if before]
        assert len(set(made)) == len(made)


def slots_of(files: Sequence[bytes]) -> dict[tuple[int, bool], bytes]:
    """Return the slots of the rings of all lanes, one file after another."""
    found: dict[tuple[int, bool], bytes] = {}
    for each in files:
        for chunk in read(each).chunks:
            if chunk.kind == _reader.CHUNK_RECORDS:
                one = records_of(chunk.body)
                assert one.first == len(found.get((one.lane, one.events), b"")) // SLOT
                found[one.lane, one.events] = found.get((one.lane, one.events), b"") + one.slots
    return found


def judge(made: Made, slots: bytes, keyed: Keyed | None) -> None:
    """Assert that the preserved fields are unchanged. The secrets must be replaced if `keyed` is given, and unchanged
    otherwise. All other fields must be zero.
    """
    assert len(slots) == len(made.slots)
    for number, kind in enumerate(made.kinds):
        before, after = (each[number * SLOT : (number + 1) * SLOT] for each in (made.slots, slots))
        if kind is None:
            assert after[:12] == bytes(12)
            assert after[16:] == bytes(48)
            continue
        old, new = (np.frombuffer(each, dtypes.dtype(kind))[0] for each in (before, after))
        wanted = np.zeros(1, dtypes.dtype(kind))
        for name in LEFT[kind] + (() if keyed else (*SECRETS[kind], *UNLESS_REDACTED.get(kind, ()))):
            wanted[name] = old[name]
        if keyed is not None:
            for name, what in SECRETS[kind].items():
                keyed.see(what, int(old[name]), int(new[name]))
                wanted[name] = new[name]
        assert wanted.tobytes() == after


EVENTS = st.lists(st.sampled_from([Made.one, Made.checked, Made.checked, Made.strange]), max_size=12)


@pytest.mark.ci
@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1), st.booleans(), EVENTS), min_size=1, max_size=5),
    st.sampled_from([640, 704, 1280, 1 << 16]),
    st.integers(0, 2**32),
)
def test_only_listed_fields_of_each_record_are_kept_across_chunks_and_files(
    redacts: bool, passes: list[tuple[int, bool, list[Callable[[Made], None]]]], limit: int, seed: int
) -> None:
    tape, keyed = Tape([], limit), Keyed() if redacts else None
    made = {(lane, events): Made(seed + lane + 7 * events) for lane in range(2) for events in (False, True)}
    with rings(lanes=2, event_slots=1024, span_slots=1024) as r:
        drain, spool = r.drain(), _reader.Spool(values=False, redacts=redacts)
        drain.record_into(spool, 7)
        for lane, events, acts in passes:
            one = made[lane, events]
            before = len(one.slots)
            for act in acts:
                (act if events or act is Made.strange else Made.spans)(one)
            r.add(lane, "event" if events else "span", one.slots[before:])
            _reader.drain([drain])
            r.publish(drain)
        tape.write(spool)
    found = slots_of(tape.files)
    for ring, one in made.items():
        judge(one, found.get(ring, b""), keyed)
        for file in tape.files if keyed else ():
            assert not [word for word in one.secrets if word in file]
    if keyed:
        keyed.apart()


@pytest.mark.parametrize("redacts", [False, True])
def test_history_lineage_and_token_of_a_row_are_left_out_of_a_redacted_recording(redacts: bool) -> None:
    history, lineage, tape = 0x0123456789ABCDEF, 0x23456789ABCDEF01, Tape([], 1 << 16)
    flags = _reader.CHECKED_HISTORY | _reader.CHECKED_POSITION
    row = CheckedRecord(Tensor(5), position=history, valid=lineage, flags=flags, token=9).slots()
    with rings(lanes=1, event_slots=64, span_slots=64) as r:
        drain, spool = r.drain(), _reader.Spool(values=False, redacts=redacts)
        drain.record_into(spool, 7)
        r.add(0, "event", row)
        _reader.drain([drain])
        r.publish(drain)
        tape.write(spool)
    ((found,), _) = records.events(slots_of(tape.files)[0, True])
    kept = found["position"] == history, found["valid"] == lineage, found["output"]["token"] == 9
    assert kept == ((False,) * 3 if redacts else (True,) * 3)
    assert found["valid"] != found["position"] != 0


@pytest.mark.ci
@pytest.mark.parametrize("room", [2_000, 5_000, pytest.param(20_000, marks=pytest.mark.ci)])
def test_slots_dropped_from_a_full_spool_reveal_nothing(room: int) -> None:
    made, tape = Made(room), Tape([], 1 << 20)
    with rings(event_slots=1 << 13) as r:
        drain, spool = r.drain(), _reader.Spool(room, redacts=True)
        drain.record_into(spool, 7)
        for number in range(60):
            before = len(made.slots)
            for _ in range(made.sequence % 7 + 1):
                made.checked()
            r.add(0, "event", made.slots[before:])
            _reader.drain([drain])
            r.publish(drain)
            if number % 15 == 0:
                tape.write(spool)
        tape.write(spool)
    assert spool.refused_slots > 0
    for file in tape.files:
        assert not [word for word in made.secrets if word in file]


@given(st.booleans(), st.binary(min_size=SLOT, max_size=40 * SLOT), st.integers(0, 2**32))
def test_nothing_is_kept_of_slots_that_are_not_records(redacts: bool, bits: bytes, seed: int) -> None:
    generator, slots = random.Random(seed), bytearray(bits[: len(bits) // SLOT * SLOT])
    words = set()
    for at in range(0, len(slots), SLOT):
        for place in (0, 16, 24, 32, 40, 48, 56):
            slots[at + place : at + place + 8] = word = generator.randbytes(8)
            words.add(bytes(word))
        if generator.random() < 0.7:
            struct.pack_into("<HH", slots, at + 12, generator.choice([1, 2, 3, 4, 60000]), generator.choice([10, 77]))
    tape = Tape([], 1 << 16)
    with rings(event_slots=64) as r:
        drain, spool = r.drain(), _reader.Spool(values=False, redacts=redacts)
        drain.record_into(spool, 7)
        r.add(0, "event", bytes(slots))
        _reader.drain([drain])
        tape.write(spool)
    known = {*range(DEFER, CHECKED + 1), _reader.KIND_SOURCE, _reader.KIND_STEP_TEXT, _reader.KIND_CANARY}
    if not any(slots[at + 14] in known and slots[at + 15] == 0 for at in range(0, len(slots), SLOT)):
        assert not [word for file in tape.files for word in words if word in file]


@pytest.mark.parametrize("ring", ["span", "event"])
def test_nothing_is_kept_of_records_of_unknown_kinds_or_with_a_wrong_number_of_slots(ring: str) -> None:
    made, tape = Made(5), Tape([], 1 << 16)
    for slots, kind in ((1, 99), (3, 99), (2, SPAN), (2, STEP), (2, DEFER), (2, _reader.KIND_STEP_TEXT)):
        made.strange(slots, kind)
    with rings(span_slots=64, event_slots=64) as r:
        drain, spool = r.drain(), _reader.Spool(values=False)
        drain.record_into(spool, 7)
        r.add(0, ring, made.slots)
        _reader.drain([drain])
        tape.write(spool)
    ((_, found),) = slots_of(tape.files).items()
    judge(made, found, None)


def test_nothing_is_kept_of_slots_after_an_invalid_record() -> None:
    made, tape = Made(3), Tape([], 1 << 16)
    made.spans()
    made.slots += struct.pack("<QIHH6Q", 2, 0, 0, DEFER, *[0] * 6)
    for _ in range(9):
        made.strange()
    with rings(event_slots=1 << 9) as r:
        drain, spool = r.drain(), _reader.Spool(redacts=True)
        drain.record_into(spool, 7)
        r.add(0, "event", made.slots)
        _reader.drain([drain])
        tape.write(spool)
    (slots,) = slots_of(tape.files).values()
    assert len(slots) == len(made.slots)
    assert slots[SLOT:] == bytes(len(slots) - SLOT)


def test_each_recording_has_its_own_key_and_key_name() -> None:
    one, other = _reader.Spool(redacts=True), _reader.Spool(redacts=True)
    for name in (0, 1, 2**64 - 1):
        assert one.key_name(name) == one.key_name(name) not in (0, name, other.key_name(name))
        assert [_reader.Spool(values=values).key_name(name) for values in (False, True)] == [name, name]
    for wrong in (-1, 2**64, "x", None):
        with pytest.raises((OverflowError, TypeError)):
            one.key_name(wrong)  # type: ignore[arg-type]


def test_events_of_unknown_kinds_lose_their_text() -> None:
    known = Event(1, 2, "worker_died", "api/0 died", "api", "api/0", "brickd inspect api/0", "09d33a43")
    unknown = Event(1, 2, "diverged", "at step 123456", "api", "api/0", "brickd diff --step 123456", "09d33a43")
    assert redact.event(known) == known
    assert redact.event(unknown) == Event(1, 2, "diverged", "omitted: the recording is redacted", "api", "api/0", None)


# ---- real workers

ENGINE = """
import struct
with brick.span("begins"): pass
pause()
def tensor(*values): return memoryview(struct.pack("4d", *values) * 10).cast("d")
reported = []
for number in range(ROUNDS):
    step, position = 0x1122334455667700 + number, 0x77665544332211 + number
    first, second = tensor(1.0625, number, 3, 4), tensor(9, 8, number, 6.03125)
    with brick.step(step), brick.layer(3), brick.span("work"):
        brick.checksum("one", first, input=second, position=position, params={"request": number})
        brick.checksum("two", second, input=first)
        brick.brick("deferred").defer(stream=0x5151515151515100 + number)
    for each in (first, second):
        f = brick.fingerprint(each, key=KEY())
        reported.append([f.checksum, f.fnv1a, f.mean, f.l2, f.sketch])
report(reported)
pause()
"""
KEY = """
def KEY():
    with open(os.environ["BRICKD_STATE_DIR"] + "/key") as file:
        return int(file.read(32), 16)
"""


@dataclass
class Engine:
    """The secrets of a worker, which are unique so that a search in a file would find them."""

    rounds: int
    reported: list[list[Any]]

    def keyed(self) -> Iterator[bytes]:
        for number in range(self.rounds):
            yield struct.pack("<Q", 0x1122334455667700 + number)
            yield struct.pack("<Q", 0x77665544332211 + number)
            yield struct.pack("<Q", 0x5151515151515100 + number)
        yield from (struct.pack("<Q", int(checksum, 16)) for checksum, *_ in self.reported)

    def values(self) -> Iterator[bytes]:
        for _, fnv1a, mean, l2, sketch in self.reported:
            yield struct.pack("<Q", int(fnv1a, 16))
            yield from (struct.pack("<d", each) for each in (mean, l2))
            yield from (struct.pack("<2f", *sketch[at : at + 2]) for at in range(15) if all(sketch[at : at + 2]))

    def words(self) -> set[bytes]:
        return {*self.keyed(), *self.values()}


def recorded(worker: Start, file: Path, *arguments: str, daemon: Running | None = None, rounds: int = 4) -> Engine:
    """Record a worker, with a daemon or with `brickd record` alone; return the worker's secrets."""
    process = started(worker, KEY + ENGINE.replace("ROUNDS", str(rounds)), **STILL)
    if daemon is not None:
        daemon.until("worker_found")  # otherwise, the daemon would turn on span detail only later
    with recording("-o", str(file), *arguments) as recorder:
        process.go()
        reported = process.next_report()
        process.paused()
        recorder.send_signal(signal.SIGINT)
        out, err = recorder.communicate()
        assert recorder.returncode == 0, err
        answer = json.loads(out)
        assert [answer["values"], answer["redacted"]] == [each in arguments for each in ("--values", "--redact")]
    return Engine(rounds, reported)


def found(engine: Engine, files: Sequence[Path]) -> set[bytes]:
    every = [file.read_bytes() for file in files]
    return {word for word in engine.words() if any(word in each for each in every)}


@pytest.mark.ci
@pytest.mark.parametrize("by", ["with a daemon", "without a daemon"])
def test_a_redacted_recording_has_no_customer_data(worker: Start, tmp_path: Path, by: str) -> None:
    file = tmp_path / "run.brick"
    with running() if by == "with a daemon" else nullcontext() as daemon:
        engine = recorded(worker, file, "--redact", "--spans", daemon=daemon)
    assert found(engine, [file]) == set()
    reported = brickd("inspect", "-n", "100", "--json", str(file), "api/0")
    there = json.loads(reported.stdout)
    assert (there["recording"]["values"], there["recording"]["redacted"]) == (False, True)
    assert "brickd: redacted: checksums" in reported.stderr
    (lane,) = there["lanes"]
    checks = [event["checked"] | {"step": event["step"]} for event in lane["events"] if event["checked"]]
    one, two = checks[0::2], checks[1::2]
    assert len(one) == len(two) == 4
    for first, second in zip(one, two, strict=True):  # equal values stay equal, and different values stay different
        assert first["output"]["checksum"] == second["inputs"][0]["checksum"]
        assert first["inputs"][0]["checksum"] == second["output"]["checksum"]
        assert first["output"]["checksum"] != second["output"]["checksum"]
        assert first["step"] == second["step"] is not None
        assert [first["output"][name] for name in ("min", "max", "mean", "l2")] == [None] * 4
        assert (first["output"]["dtype"], first["output"]["elements"]) == ("float64", 40)
        assert second["position"] == 0, "without a given position, the agent counts the position"
    assert len({each["output"]["checksum"] for each in one}) == len({each["step"] for each in one}) == 4
    assert len({each["position"] for each in one}) == len({each["params"] for each in one}) == 4
    steps = {span["step"] for span in lane["spans"] if span["brick"] in ("step", "work")}
    assert steps == {each["step"] for each in checks}, "spans have the steps of the checksums"


READS = """
from array import array
brick.weights({"layers.0.experts.5.w": array("f", [1.5] * 64), "norm": array("f", [2.0] * 64)}, share=1.0, **named)
def scans(): return int.from_bytes(os.pread(_core._segment_fd(), 8, at), "little")
pause()
while scans() < 2:
    with brick.step(None): pass
pause()
"""


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize("named", ["{}", '{"generation": 1234567890123}'])
@pytest.mark.parametrize(
    "degree", [*(pytest.param(degree, marks=pytest.mark.ci) for degree in ([], ["--values"])), ["--redact"]]
)
def test_known_weights_equal_their_records_at_every_level_of_redaction(
    worker: Start, tmp_path: Path, degree: list[str], named: str
) -> None:
    path = tmp_path / "run.brick"
    with running() as daemon:
        process = worker(f"at, named = {SCANS}, {named}\n{READS}", **STILL)
        process.paused()
        daemon.once("/weights", lambda answer: answer["workers"][0]["tensors"])
        with recording("-o", str(path), *degree) as tool:
            assert daemon.ask("/weights/rescan", b"")["workers"] == ["api/0"]
            process.go()
            process.paused()
            tool.send_signal(signal.SIGINT)
            assert tool.wait() == 0
    with open_recording(str(path)) as form:
        before = FileIndex(form).weights()
    with opened([str(path)]) as world:
        after = world.weights(world.survey().workers)
    assert before is not None
    (uuid,) = before
    was, now = before.of(uuid), after.of(uuid)
    assert was is not None
    assert now is not None
    assert before.tensors("api") == after.tensors("api")
    assert {tensor.expert for tensor in after.tensors("api")} == {5, -1}
    assert (was.generations, was.now, was.ticks) == (now.generations, now.firsts, now.first_ticks)
    assert (now.now, min(now.ticks) > max(now.first_ticks)) == (now.firsts, True)
    assert (was.generations[0] == 1234567890123) == (named != "{}" and degree != ["--redact"])
    shown = [content(after.contents[number]) for number in now.now]
    assert [each.l2 for each in shown] == ([12.0, 16.0] if degree == ["--values"] else [0.0, 0.0])


@pytest.mark.ci
def test_all_files_of_a_redacted_set_are_redacted_alike(worker: Start, tmp_path: Path) -> None:
    engine = recorded(worker, tmp_path / "run.brick", "--redact", "--max-size", "65536", "--files", "100", rounds=100)
    files = sorted(tmp_path.glob("run*.brick"))
    assert len(files) > 1
    assert found(engine, files) == set()
    with opened([str(file) for file in files]) as world, ExitStack() as forms:
        assert world.redacted
        uuid = world.survey().workers[0].reading.uuid
        by_number = sorted(
            (forms.enter_context(open_recording(str(file))) for file in files), key=lambda form: form.title.number
        )
        whole = Checked([FileIndex(form) for form in by_number], {uuid})
        checks = [each for _, slots in whole for each in records.events(slots)[0]]
        assert (len(checks), whole.lost[uuid].cut) == (200, 0)
        for first, second in zip(checks[0::2], checks[1::2], strict=True):
            assert first["tensors"][0]["checksum"] == second["tensors"][1]["checksum"]
    for file in files:
        with open_recording(str(file)) as form:
            assert json.loads(next(iter(form)).body)["redacted"] is True


@pytest.mark.ci
def test_two_redacted_recordings_of_one_worker_have_nothing_in_common(worker: Start, tmp_path: Path) -> None:
    program = KEY + ENGINE.replace("ROUNDS", "2")
    seen: list[tuple[set[int], int]] = []
    for number in range(2):
        file = tmp_path / f"{number}.brick"
        process = started(worker, program, **STILL)
        with recording("-o", str(file), "--redact") as recorder:
            process.go()
            process.next_report()
            process.paused()
            recorder.send_signal(signal.SIGINT)
            recorder.communicate()
        process.go()
        assert process.end() == 0
        with opened([str(file)]) as world, open_recording(str(file)) as form:
            (there,) = world.survey().workers
            ((_, slots),) = Checked([FileIndex(form)], {there.reading.uuid})
            sums = {each["tensors"][0]["checksum"] for each in records.events(slots)[0]}
            seen.append((sums, there.reading.process["key"]))
    (one, its), (other, others) = seen
    assert not one & other
    assert its != others
    assert 0 not in (its, others)


@pytest.mark.ci
def test_an_older_recording_without_the_mark_is_not_redacted(worker: Start, tmp_path: Path) -> None:
    started(worker, **STILL)
    file = tmp_path / "run.brick"
    assert record("-o", str(file), "--duration", "0.05", "--redact")["redacted"] is True
    assert "redacted" in brickd("status", str(file)).stderr
    body = next(body for kind, _, _, body in chunks(file) if kind == _reader.CHUNK_BEGINNING)
    before = json.loads(body)
    del before["values"]
    assert body_codec.read_beginning(json.dumps(before).encode()).values is False
    del before["redacted"]
    assert body_codec.read_beginning(json.dumps(before).encode()).redacted is False
    assert body_codec.read_beginning(json.dumps(before).encode()).values is True, (
        "an earlier version of brickd wrote values"
    )
    assert document("status", str(file))["recording"]["redacted"] is True


@pytest.mark.parametrize("redacts", [False, True])
def test_a_piece_written_in_parts_is_redacted_once(redacts: bool) -> None:
    made, keyed = Made(5), Keyed() if redacts else None
    with rings(event_slots=1024) as r:
        drain, spool = r.drain(), _reader.Spool(values=False, redacts=redacts)
        drain.record_into(spool, 7)
        for _ in range(20):
            made.checked()
        r.add(0, "event", made.slots)
        _reader.drain([drain])
        tape = Tape([], 704)
        tape.write(spool)
    assert len(tape.files) > 10
    judge(made, slots_of(tape.files)[0, True], keyed)


@functools.cache
def made_of_many() -> Made:
    """Return so many checksums that one of them is split between two pieces. The result is cached, because making it is
    slow.
    """
    made = Made(9)
    while len(made.slots) < (4 * 4096 + 1_000) * SLOT:
        made.checked()
    return made


@pytest.mark.ci
@pytest.mark.parametrize(("room", "lost"), [(1 << 24, 0), pytest.param(3_000 * SLOT, 4 * 4096, marks=pytest.mark.ci)])
@pytest.mark.parametrize("redacts", [pytest.param(False, marks=pytest.mark.ci), True])
def test_a_checksum_in_two_pieces_is_redacted_in_both(redacts: bool, room: int, lost: int) -> None:
    made, keyed, tape = made_of_many(), Keyed() if redacts else None, Tape([], 1 << 22)
    with rings(event_slots=1 << 15) as r:
        drain, spool = r.drain(), _reader.Spool(room, values=False, redacts=redacts)
        drain.record_into(spool, 7)
        r.add(0, "event", made.slots)
        _reader.drain([drain])
        tape.write(spool)
    assert spool.refused_slots == lost
    pieces = [records_of(chunk.body) for each in tape.files for chunk in read(each).chunks[1:]]
    assert any(0 < piece.inside < 20 for piece in pieces), (
        "no checksum is divided between two pieces: choose another seed"
    )
    if not lost:
        judge(made, slots_of(tape.files)[0, True], keyed)
        return
    (piece,) = pieces
    assert piece.slots[: piece.inside * SLOT] == bytes(piece.inside * SLOT)
    for file in tape.files if keyed else ():
        assert made.secrets.isdisjoint(file[at : at + 8] for at in range(len(file)))


@pytest.mark.parametrize("redacts", [False, pytest.param(True, marks=pytest.mark.ci)])
@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_checksum_is_redacted_equally_wherever_a_piece_ends(redacts: bool, done: int) -> None:
    made, keyed, tape = Made(done), Keyed() if redacts else None, Tape([], 1 << 22)
    for _ in range(4 * 4096 - done):
        made.sequence += 1
        made.slots += struct.pack("<QIHH48x", made.sequence, 0, 1, 99)
        made.kinds.append(None)
    made.checked()
    with rings(event_slots=1 << 15) as r:
        drain, spool = r.drain(), _reader.Spool(values=False, redacts=redacts)
        drain.record_into(spool, 7)
        r.add(0, "event", made.slots)
        _reader.drain([drain])
        tape.write(spool)
    pieces = [records_of(chunk.body) for each in tape.files for chunk in read(each).chunks[1:]]
    assert [piece.first for piece in pieces] == [0, 4 * 4096]
    judge(made, slots_of(tape.files)[0, True], keyed)


@pytest.mark.parametrize("other", ["worker", "lane", "place"])
@pytest.mark.parametrize("redacts", [False, True])
def test_a_piece_that_resembles_the_rest_of_another_is_not_taken_for_it(redacts: bool, other: str) -> None:
    """The first piece ends within a checksum, and there was no room for the rest of this checksum. The last piece
    begins with data that looks like this rest.
    """
    tape, long, short = Tape([], 1 << 24), 6 * 4_000, 6 * (3_600 if other == "place" else 2_900)
    slots = bytearray(CheckedRecord(Tensor(7, nan=1), (Tensor(8, nan=2),), params=3).slots() * 4_000)
    for number in range(4_000):
        struct.pack_into("<Q", slots, 6 * number * SLOT, 1 + number)  # the sequence number of the record
    with rings(lanes=2, event_slots=1 << 15) as one, rings(event_slots=1 << 15) as two:
        spool = _reader.Spool((4 * 4096 + 2_000) * SLOT, values=False, redacts=redacts)
        drains = [one.drain(), two.drain()]
        for number, drain in enumerate(drains):
            drain.record_into(spool, number)
        one.add(0, "event", slots[: SLOT * (short if other == "place" else long)])
        if other != "place":
            (two if other == "worker" else one).add(int(other == "lane"), "event", slots[: SLOT * short])
        _reader.drain(drains)
        tape.write(spool)
    first, last = (records_of(chunk.body) for each in tape.files for chunk in read(each).chunks[1:])
    assert (first.worker, first.lane, first.first, len(first.slots)) == (0, 0, 0, 4 * 4096 * SLOT)
    place = 5 * 4096 if other == "place" else 4 * 4096
    assert (last.worker, last.lane, last.first) == (other == "worker", other == "lane", place)
    assert last.inside == 6 - place % 6
    assert last.slots[: last.inside * SLOT] == bytes(last.inside * SLOT)


@pytest.mark.parametrize("length", [0, 5, 48, 49])
@pytest.mark.parametrize(("values", "redacts"), [(True, False), (False, False), (False, True)])
def test_the_text_of_a_step_is_recorded_up_to_its_length_unless_redacted(
    values: bool, redacts: bool, length: int
) -> None:
    head, text = struct.pack("<HH", 1, _reader.KIND_STEP_TEXT), bytes(range(1, 49))
    slots = struct.pack("<QI", 9, length) + head + text
    tape = Tape([], 1 << 16)
    with rings(event_slots=64) as r:
        drain, spool = r.drain(), _reader.Spool(values=values, redacts=redacts)
        drain.record_into(spool, 7)
        r.add(0, "event", slots)
        _reader.drain([drain])
        tape.write(spool)
    ((_, found),) = slots_of(tape.files).items()
    left = length if length <= 48 and not redacts else 0
    kept = struct.pack("<QI", 9, left) + head + text[:left].ljust(48, b"\0")
    assert found == (slots if values else kept)


@pytest.mark.parametrize(
    ("kind", "values", "redacts"),
    [
        (_reader.KIND_SOURCE, True, False),
        (_reader.KIND_SOURCE, False, False),
        (_reader.KIND_SOURCE, False, True),
        (_reader.KIND_CANARY, False, False),
    ],
)
def test_the_record_of_a_source_or_a_canary_keeps_its_sequence_so_that_no_record_counts_as_missing(
    kind: int, values: bool, redacts: bool
) -> None:
    record = struct.pack("<QIHH", 9, 1, 1, kind) + bytes(range(1, 49))
    tape = Tape([], 1 << 16)
    with rings(event_slots=64) as r:
        drain, spool = r.drain(), _reader.Spool(values=values, redacts=redacts)
        drain.record_into(spool, 7)
        r.add(0, "event", record)
        _reader.drain([drain])
        tape.write(spool)
    ((_, found),) = slots_of(tape.files).items()
    assert found == (record if values else struct.pack("<QIHH48x", 9, 0, 1, kind))
