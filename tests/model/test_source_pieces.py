"""Sources are assembled from the pieces of several senders, in any order, even if some pieces are hostile."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import source_pieces
from hypothesis import given
from hypothesis import strategies as st
from rings import rings
from source_pieces import END, NAME, PATH, PIECE, TEXT, Piece, fnv1a, part, record, take_each, texts

from brickd.model.event_log import Log
from brickd.model.kernel_sources import files, store
from brickd.model.kernel_sources.assembly import KernelSource, SourceHead, decoded
from brickd.model.kernel_sources.files import Filed
from brickd.model.kernel_sources.store import Sources
from brickd.shm import _reader
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory

TEXTS = st.binary(max_size=200) | st.text(max_size=100).map(str.encode)
LABELS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50).map(str.encode)


def restarted(before: Sources) -> Sources:
    """Return the sources as the next daemon restores them from the checkpoint."""
    return Sources.of(json.loads("".join(before.pieces())))


def test_a_checkpoint_holds_sources_that_are_in_no_file() -> None:
    memory = Memory("brickd-")
    memory.sources.take("a", source_pieces.all_pieces(b"text" * 99)[2:])
    memory.sources.take("b", source_pieces.all_pieces(b"whole"))
    memory.sources.take("hostile", source_pieces.all_pieces(b"other", hash_=fnv1a(b"text" * 99)))
    after = checkpoint.decode(checkpoint.encode(memory)).sources
    assert [*after.pieces()] == [*memory.sources.pieces()]
    after.take("a", source_pieces.all_pieces(b"text" * 99))
    assert set(texts(after).values()) == {b"text" * 99, b"whole"}


@pytest.fixture
def filed(tmp_path: Path) -> Filed:
    return Filed(tmp_path / "sources")


def kept(filed: Filed, log: Log | None = None) -> Sources:
    """Return the sources of a new daemon that keeps them in these files."""
    made = Sources()
    made.go_into(filed, Log().add if log is None else log.add)
    return made


def events(log: Log) -> list[str]:
    return [event.kind for event in log.since(0).events]


# ---- from rings


def other(slots: int, kind: int) -> bytes:
    """Return a record of another kind."""
    head: bytes = record((1, 2, bytes(PIECE)))[:12]
    return head + struct.pack("<HH", slots, kind) + b"\7" * (64 * slots - 16)


OTHER = st.builds(other, st.integers(1, 4), st.sampled_from([3, 6, 10]))


@given(st.lists(TEXTS.map(source_pieces.all_pieces) | OTHER, max_size=8))
def test_pieces_are_separated_from_other_records_without_loss(stretches: list[list[Piece] | bytes]) -> None:
    slots = [each if isinstance(each, bytes) else b"".join(map(record, each)) for each in stretches]
    others, runs, _ = _reader.pieces(b"".join(slots))
    assert others == b"".join(each for each in stretches if isinstance(each, bytes))
    one_by_one = [
        (hash_, first + at // PIECE, text[at : at + PIECE])
        for hash_, first, text in runs
        for at in range(0, len(text), PIECE)
    ]
    assert one_by_one == [piece for each in stretches if isinstance(each, list) for piece in each]


def test_consecutive_pieces_are_joined_and_other_records_stay_unchanged() -> None:
    pieces = source_pieces.all_pieces(b"x" * 1000, b"name")
    _, runs, _ = _reader.pieces(b"".join(map(record, pieces)))
    assert [len(text) // PIECE for _, _, text in runs] == [1, 25, 1]
    deferred = bytes(64 * 3)
    assert _reader.pieces(deferred)[0] is deferred


def test_pieces_of_a_canary_are_separated_from_those_of_a_source_with_the_same_hash() -> None:
    records = [record(piece) for piece in source_pieces.part(5, source_pieces.TEXT, b"x" * 4 * PIECE)]
    kind = _reader.KIND_CANARY.to_bytes(2, "little")
    mixed = records[:2] + [each[:14] + kind + each[16:] for each in records[2:]]
    others, sources, canaries = _reader.pieces(b"".join(mixed))
    assert others == b""
    assert sources == [(5, 2 << 30, b"x" * 2 * PIECE)]
    assert canaries == [(5, 2 << 30 | 2, b"x" * 2 * PIECE)]


@pytest.mark.parametrize("kind", [_reader.KIND_SOURCE, _reader.KIND_CANARY])
def test_a_piece_of_two_slots_is_not_read(kind: int) -> None:
    valid = record((1, 2, bytes(PIECE)))
    found = [valid[:12] + struct.pack("<HH", slots, kind) + valid[16:] for slots in (1, 2)]
    second = (2).to_bytes(8, "little") + found[1][8:]
    with rings(event_slots=64) as r:
        drain = r.drain()
        r.add(0, "event", found[0] + second + bytes(64))
        ((_, events, refused),) = _reader.drain([drain])[2]
    assert (events, refused) == (found[0], None)


@pytest.mark.parametrize("slots", [0, 2, 65535])
def test_a_piece_is_not_found_inside_or_after_an_endless_record(slots: int) -> None:
    lie = record((1, 2, bytes(PIECE)))[:12] + slots.to_bytes(2, "little") + b"\3\0" + bytes(48)
    rest = lie + record((3, 0, bytes(PIECE)))
    assert _reader.pieces(rest) == (rest, [], [])


@given(TEXTS)
def test_a_source_is_known_by_the_hash_of_its_text(text: bytes) -> None:
    assert _reader.source_hash(text) == fnv1a(text)


# ---- assembly


@given(st.data())
def test_any_order_and_any_interleaving_gives_the_texts(data: st.DataObject) -> None:
    every = {fnv1a(text): text for text in data.draw(st.lists(TEXTS, min_size=1, max_size=3))}
    senders = data.draw(st.integers(1, 3))
    stream = [
        (str(sender), piece)
        for sender in range(senders)
        for text in every.values()
        for piece in source_pieces.all_pieces(text, b"n")
    ]
    made = Sources()
    for sender, piece in data.draw(st.permutations(stream)):
        if data.draw(st.booleans()):
            made = restarted(made)
        made.take(sender, [piece])
    assert texts(made) == every
    assert not +made.counts


@given(st.data(), TEXTS.filter(bool), st.integers(1, 5))
def test_pieces_from_several_senders_are_assembled(data: st.DataObject, text: bytes, senders: int) -> None:
    made, known = Sources(), fnv1a(text)
    labels = [*part(known, NAME, b"name" * 20), *part(known, PATH, b"/a/path")]
    rest = [*part(known, TEXT, text), source_pieces.end(known, 80, 7, len(text))]
    for piece in data.draw(st.permutations(labels)) + data.draw(st.permutations(rest)):
        made.take(str(data.draw(st.integers(1, senders))), [piece])
    assert texts(made) == {known: text}
    assert made.heads()[known] == SourceHead("name" * 20, "/a/path", len(text))


JUNK = st.tuples(
    st.sampled_from([fnv1a(b""), fnv1a(b"abc" * 30), 0, 2**64 - 1]),
    st.integers(0, 2**32 - 1) | st.builds(lambda p, n: p << 30 | n, st.integers(0, 3), st.integers(0, 4)),
    st.binary(min_size=PIECE, max_size=PIECE) | st.just(b"abc" * 13 + b"a") | st.just(bytes(16) + b"\x5a" + bytes(23)),
)


@pytest.mark.ci
@given(st.lists(st.tuples(st.sampled_from("ab"), JUNK), max_size=40))
def test_hostile_pieces_give_only_texts_with_their_hashes(stream: list[tuple[str, Piece]]) -> None:
    made = Sources()
    for sender, piece in stream:
        made.take(sender, [piece])
        assert all(fnv1a(text) == hash_ for hash_, text in texts(made).items())
    assert texts(restarted(made)) == texts(made)


@pytest.mark.ci
@given(st.data())
def test_a_hostile_sender_cannot_block_a_source(data: st.DataObject) -> None:
    text = b"the text of a kernel, which has more than two pieces. " * 3
    hash_ = fnv1a(text)
    hostile = data.draw(st.lists(JUNK, max_size=20).map(lambda junk: [(hash_, piece, lie) for _, piece, lie in junk]))
    hostile += data.draw(st.sampled_from([[], source_pieces.all_pieces(b"a lie" * 40, b"hostile", b"/hostile", hash_)]))
    stream = [("hostile", piece) for piece in data.draw(st.permutations(hostile))]
    # pieces come in order, but hostile pieces may come between them
    for piece in source_pieces.all_pieces(text, b"honest"):
        stream.insert(data.draw(st.integers(next_after(stream), len(stream))), ("honest", piece))
    made = Sources()
    for sender, piece in stream:
        made.take(sender, [piece])
    assert texts(made) == {hash_: text}
    assert made.heads()[hash_].name == "honest"


def next_after(stream: list[tuple[str, Piece]]) -> int:
    """Return the index after the last piece of the honest sender."""
    return max((n + 1 for n, (sender, _) in enumerate(stream) if sender == "honest"), default=0)


def test_a_wrong_hash_is_counted_and_reported_once(filed: Filed) -> None:
    log = Log()
    made = kept(filed, log)
    take_each(made, "hostile", source_pieces.all_pieces(b"another text" * 9, hash_=fnv1a(b"the text")))
    made.file()
    assert (texts(made), filed.hashes()) == ({}, [])
    assert (made.counts["refuted"], events(log)) == (1, ["source_refuted"])


HOSTILE = {
    "a number beyond the longest text": (TEXT << 30 | 26_215, bytes(PIECE)),
    "the last piece number": (TEXT << 30 | 2**30 - 1, bytes(PIECE)),
    "a name without end": (25, bytes(PIECE)),
    "an end that is not the first": (END << 30 | 1, bytes(PIECE)),
    "a text that is too long": (END << 30, bytes(16) + (2**20 + 1).to_bytes(8, "little") + bytes(16)),
    "a text without end": (END << 30, bytes(16) + b"\xff" * 8 + bytes(16)),
    "a name that is too long": (END << 30, (1001).to_bytes(8, "little") + bytes(32)),
    "an end with more behind it": (END << 30, bytes(39) + b"\1"),
}


@pytest.mark.parametrize("lie", HOSTILE)
def test_impossible_pieces_are_refused_and_counted(lie: str) -> None:
    made = Sources()
    made.take("hostile", [(5, *HOSTILE[lie])])
    assert made.counts["refused"] == 1
    assert restarted(made).counts["refused"] == 1
    take_each(made, "honest", source_pieces.all_pieces(b"fine"))
    assert texts(made) == {fnv1a(b"fine"): b"fine"}


def test_text_that_is_not_utf_8_is_unchanged(filed: Filed) -> None:
    text, made = bytes(range(256)), kept(filed)
    take_each(made, "a", source_pieces.all_pieces(text, b"\xff name", b"\xc3"))
    made.file()
    assert filed.read(fnv1a(text)) == KernelSource(fnv1a(text), "\ufffd name", "\ufffd", text)


# ---- two texts with one hash


def test_of_two_texts_with_one_hash_the_second_is_reported(filed: Filed) -> None:
    log, text = Log(), b"the first text" * 50
    made = kept(filed, log)
    take_each(made, "a", source_pieces.all_pieces(text))
    made.file()
    for _ in range(2):
        made.take("b", source_pieces.all_pieces(b"the other one!" * 50, hash_=fnv1a(text)), "api", "api/1")
    made.take("c", source_pieces.all_pieces(text[:-1], hash_=fnv1a(text)))
    made.take("d", source_pieces.all_pieces(text, b"another name"))
    assert texts(made) == {fnv1a(text): text}
    assert restarted(made).counts["differing"] == made.counts["differing"] == 2
    assert made.heads()[fnv1a(text)].differing == 2
    logged_of = log.since(0).events
    assert [event.kind for event in logged_of] == ["source_differing"] * 2
    assert (logged_of[0].worker, logged_of[0].command) == ("api/1", f"brickd source {fnv1a(text):016x}")


def test_a_sender_of_another_text_for_an_incomplete_source_is_counted() -> None:
    text, made = b"the right text" * 50, Sources()
    made.take("a", source_pieces.all_pieces(text)[:3])
    made.take("hostile", source_pieces.all_pieces(b"the wrong text" * 50, hash_=fnv1a(text)))
    made.take("a", source_pieces.all_pieces(text)[3:])
    assert texts(made) == {fnv1a(text): text}
    assert made.heads()[fnv1a(text)].differing >= 1


# ---- one copy, and limits


@pytest.mark.ci
def test_a_source_sent_by_64_workers_is_stored_once(filed: Filed) -> None:
    log, text = Log(), bytes(n % 251 for n in range(2**20))
    made, known = kept(filed, log), _reader.source_hash(text)
    head = [*part(known, 0, b"gemm"), (known, TEXT << 30, text[: 13_000 * PIECE])]
    rest = text[13_000 * PIECE :].ljust(13_215 * PIECE, b"\0")
    tail = [(known, TEXT << 30 | 13_000, rest), source_pieces.end(known, 4, 0, len(text))]
    for worker in range(64):
        made.take(str(worker), head)
    one = len("".join(made.pieces()))
    assert one < 2 * len(text)
    for worker in range(64):
        made.take(str(worker), tail)
    made.file()
    assert len("".join(made.pieces())) < 200
    assert [each.name for each in filed.directory.iterdir()] == [f"{known:016x}"]
    assert filed.read(known) == KernelSource(known, "gemm", "", text)
    assert (events(log), +made.counts) == ([], {})


def test_over_the_limit_the_largest_senders_oldest_source_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAKING_MAX", 8)
    made, log = Sources(), Log()
    made.go_into(Filed(Path("/nowhere")), log.add)
    made.take("modest", part(1, TEXT, b"x" * 80))
    for hash_ in range(100, 130):
        made.take("greedy", part(hash_, TEXT, b"y" * 400))
    assert set(made.heads()) == {1, *range(124, 130)}
    assert made.counts["dropped"] == 24
    assert events(log) == ["source_dropped"] * 5, "at the 1st, 2nd, 4th, 8th and 16th"


def test_a_piece_at_a_high_index_takes_no_more_than_the_limit() -> None:
    made = Sources()
    made.take("modest", part(1, TEXT, b"x" * 80))
    for hash_ in range(100, 130):
        made.take("greedy", [(hash_, TEXT << 30 | 26_214, bytes(PIECE))])
    assert 1 in made.heads()
    assert len(made.heads()) <= 1 + store.MAKING_BYTES_MAX // 2**20


def test_too_many_incomplete_sources_take_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAKING_MAX", 8)
    made = Sources()
    made.take("greedy", [(hash_, TEXT << 30 | 26_214, bytes(PIECE)) for hash_ in range(100)])
    assert len(made.heads()) <= 8
    assert len(made.heads()) + made.counts["dropped"] == 100
    for n in range(100):
        made.take("honest", source_pieces.all_pieces(b"%d" % n))
    assert len(texts(made)) == 100


def test_files_are_limited_and_the_least_recently_sent_is_removed(
    filed: Filed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FILES_MAX", 3)
    log = Log()
    made = kept(filed, log)
    every = [b"%d" % n for n in range(4)]
    for n, text in enumerate(every[:3]):
        made.take("a", source_pieces.all_pieces(text))
        made.file()
        filed_at(filed, text, n)
    made.take("b", source_pieces.all_pieces(every[0]))
    made.file()  # the source was sent again, so it is not the oldest
    made.take("a", source_pieces.all_pieces(every[3]))
    made.file()
    assert set(texts(made).values()) == {every[0], every[2], every[3]}
    assert (made.counts["removed"], events(log)) == (1, ["source_removed"])
    made.take("a", source_pieces.all_pieces(every[1]))
    assert every[1] in texts(made).values(), "a dropped source may come back"


def filed_at(filed: Filed, text: bytes, seconds: int) -> None:
    """Set the time of last use of a source's file."""
    os.utime(filed.directory / f"{fnv1a(text):016x}", (seconds, seconds))


# ---- files


def test_a_file_is_private_to_its_owner_and_leaves_no_draft(filed: Filed) -> None:
    made = kept(filed)
    made.take("a", source_pieces.all_pieces(b"text"))
    made.file()
    (path,) = filed.directory.iterdir()
    assert (path.name, path.stat().st_mode & 0o777) == (f"{fnv1a(b'text'):016x}", 0o600)
    assert filed.directory.stat().st_mode & 0o777 == 0o700


DAMAGES: dict[str, Any] = {
    "a bit of the text": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "half": lambda content: content[: len(content) // 2],
    "all of it": lambda content: b"",
    "a bit of the first line": lambda content: bytes([content[0] ^ 1]) + content[1:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_ignored_and_the_source_accepted_again(filed: Filed, damage: str) -> None:
    made = kept(filed)
    made.take("a", source_pieces.all_pieces(b"text"))
    made.file()
    (path,) = filed.directory.iterdir()
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    made = kept(filed)
    assert made.read(fnv1a(b"text")) is None
    made.take("a", source_pieces.all_pieces(b"text"))
    made.file()
    assert texts(kept(filed)) == {fnv1a(b"text"): b"text"}


def test_a_file_whose_name_is_not_its_hash_is_ignored(filed: Filed) -> None:
    made = kept(filed)
    made.take("a", source_pieces.all_pieces(b"text"))
    made.file()
    (path,) = filed.directory.iterdir()
    path.rename(path.with_name("0123456789abcdef"))
    assert filed.read(0x0123456789ABCDEF) is None


def test_a_source_that_cannot_be_written_is_kept_and_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = Log()
    made = kept(Filed(tmp_path / "file" / "sources"), log)
    take_each(made, "a", source_pieces.all_pieces(b"text"))
    for _ in range(3):
        made.file()
    assert texts(restarted(made)) == texts(made) == {fnv1a(b"text"): b"text"}
    assert events(log) == ["sources_unwritten"]
    (tmp_path / "file").unlink()
    made.file()
    assert texts(kept(Filed(tmp_path / "file" / "sources"))) == {fnv1a(b"text"): b"text"}


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"[]\nx", b"{}\nx", b'{"hash":"zz","name":"","path":"","size_bytes":0}\n',
     b'{"hash":"00","name":"","path":"","size_bytes":0}\nx', b'{"hash":1,"name":"","path":"","size_bytes":0}\n',
     b'{"hash":"-0","name":"","path":"","size_bytes":-1}\n', b'{"hash":"00","name":"","path":"","size_bytes":NaN}\n',
     b'{"hash":"00","name":"","path":"","size_bytes":1048577}\n', b"[" * 9000 + b"\n", b"x" * 99_999,
     b'{"hash":"cbf29ce484222325","name":"\\ud800","path":"","size_bytes":0}\n'],
)  # fmt: skip
def test_an_invalid_saved_source_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"source|invalid structure|nested too deeply"):
        decoded(content)
