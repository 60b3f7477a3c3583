"""For any content of a recording, an export writes a valid file, or reports why it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import protobuf_reader as protobuf
import pytest
import span_recordings as made
from hypothesis import given, settings
from hypothesis import strategies as st
from span_recordings import BEGAN_NS, opened
from tapes import Written, forged
from test_perfetto import read
from test_recording_hostile import with_changed_value

from brickd.errors import BrickdError
from brickd.export.formats import export
from brickd.recording.chunks import Chunk
from brickd.shm import _reader

NUMBER = st.sampled_from([0, 1, 2, 5, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
KINDS = st.sampled_from([0, 1, 1, 1, 2, 3, 4, 5, 6, 8, 9, 99])


@st.composite
def slots(draw: st.DrawFn) -> bytes:
    """Draw records of any kind. Their sequence numbers rise from 1, and most of them have one slot."""
    found = []
    for sequence in range(1, draw(st.integers(1, 8)) + 1):
        words = [draw(NUMBER | st.integers(0, 300)) for _ in range(6)]
        payload, kind = draw(st.sampled_from([0, 1, 2, 3, 4, 77, 2**32 - 1])), draw(KINDS)
        count = draw(st.sampled_from([1, 1, 1, 1, 0, 2, 65535]))
        head = sequence.to_bytes(8, "little") + payload.to_bytes(4, "little") + count.to_bytes(2, "little")
        found.append(head + kind.to_bytes(2, "little") + b"".join(word.to_bytes(8, "little") for word in words))
    return b"".join(found)


@pytest.fixture(scope="module")
def honest() -> list[Written]:
    content = made.recording(made.chunk(made.spans((1, 10, 5), (2, 12, 3))))
    from tapes import read as chunks

    return [(each.kind, each.at_ns, each.body) for each in chunks(content).chunks if isinstance(each, Chunk)]


def documents(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()]


CHECKS: dict[str, Callable[[bytes], object]] = {
    "perfetto": read,
    "jsonl": documents,
    "csv": bytes.decode,
    "collapsed": bytes.decode,
    "pprof": len,
}


@pytest.mark.ci
@settings(max_examples=40)
@given(st.data())
def test_any_recording_is_exported_or_refused(
    tmp_path_factory: pytest.TempPathFactory, honest: list[Written], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    chunks = list(honest)
    if data.draw(st.booleans()):
        number = data.draw(st.integers(0, len(chunks) - 1))
        kind, at_ns, body = chunks[number]
        if kind != _reader.CHUNK_RECORDS:
            chunks[number] = kind, at_ns, with_changed_value(body, data)
    for _ in range(data.draw(st.integers(0, 3))):
        head = b"".join(data.draw(st.sampled_from([0, 1, 2])).to_bytes(4, "little") for _ in range(4)) + bytes(48)
        chunks.append((_reader.CHUNK_RECORDS, BEGAN_NS, head + data.draw(slots())))
    form = data.draw(st.sampled_from(sorted(CHECKS)))
    with opened(folder, forged(chunks)) as forms, suppress(BrickdError):
        export(forms, form, str(folder / "out"))
        CHECKS[form]((folder / "out").read_bytes())


def test_the_decoder_of_the_tests_refuses_a_cut_message() -> None:
    with pytest.raises(AssertionError, match="a field ends after its message"):
        protobuf.message(b"\x0a\x05ab")
