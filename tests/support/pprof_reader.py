"""Reads profiles of pprof; shares no code with the encoder in brickd."""

from __future__ import annotations

import gzip
from typing import Any

import protobuf_reader as protobuf

from brickd.export import pprof


def profile(content: bytes) -> tuple[list[dict[str, Any]], protobuf.Message]:
    """Decode a profile: the values, stack and labels of each sample, and the message."""
    whole = protobuf.message(gzip.decompress(content))
    strings = [each.decode() for each in whole[pprof.STRINGS]]
    functions = {one[1][0]: strings[one[2][0]] for one in map(protobuf.message, whole[pprof.FUNCTION])}
    locations = {
        one[1][0]: functions[protobuf.message(one[4][0])[1][0]] for one in map(protobuf.message, whole[pprof.LOCATION])
    }
    samples = []
    for sample in map(protobuf.message, whole[pprof.SAMPLE]):
        labels = {}
        for label in map(protobuf.message, sample[3]):
            labels[strings[label[1][0]]] = strings[label[2][0]] if label[2] else label[3][0]
        stack = [locations[each] for each in protobuf.packed(sample[1][0])]
        samples.append({"values": protobuf.packed(sample[2][0]), "stack": stack, "labels": labels})
    assert strings[0] == ""
    assert [[strings[each] for (each,) in protobuf.message(one).values()] for one in whole[pprof.SAMPLE_TYPE]] == [
        ["spans", "count"],
        ["self", "nanoseconds"],
    ]
    return samples, whole
