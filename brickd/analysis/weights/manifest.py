"""A manifest: a file with the checksums that weights are expected to have.

Owns: the format of a manifest. Must not know: which workers are compared, screens. Invariants: The file is hostile
input. A manifest has one entry for each tensor. The file is written atomically.
"""

from __future__ import annotations

import contextlib
import json
import os
import reprlib
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from brickd.base import state_file
from brickd.base.timestamps import rfc3339
from brickd.errors import BrickdError

SCHEMA_VERSION = 1
BYTES_MAX = 64 << 20
_WHAT = "weights"
_CHECKSUM_DIGITS = frozenset("0123456789abcdef")

Document = Mapping[str, Any]


class TensorKey(NamedTuple):
    """A tensor of a shard."""

    shard: str
    tensor: str
    layer: int | None
    expert: int | None


class ExpectedContent(NamedTuple):
    """The expected content of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    checksum: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest. `key` is the name of the key of its checksums, or None if they have no key."""

    key: str | None
    service: str
    tensors: Mapping[TensorKey, ExpectedContent]


def save(path: Path, tensors: Sequence[Document]) -> Manifest:
    """Write the result of the view `weights` as a manifest.

    Raises:
        BrickdError: the workers' weights are not all equal, or the file cannot be written.
    """
    keys = {tensor["key"] for tensor in tensors}
    services = {tensor["service"] for tensor in tensors}
    if not tensors:
        raise BrickdError("no weights are recorded, so there is nothing to save (brickd weights shows why)")
    if len(keys) > 1 or len(services) > 1:
        what = f"{len(services)} services" if len(services) > 1 else f"{len(keys)} keys"
        raise BrickdError(
            f"the workers have {what}, expected one service and one key: select workers"
            " (brickd weights WORKER --save MANIFEST)"
        )
    found: dict[TensorKey, ExpectedContent] = {}
    for tensor in tensors:
        place, content = place_of(tensor), content_of(tensor)
        if found.setdefault(place, content) != content:
            raise BrickdError(
                f"{place.tensor} differs between {tensor['workers'][0]} and other workers: select a worker with the "
                f"right weights (brickd weights WORKER --save MANIFEST)"
            )
    manifest = Manifest(next(iter(keys)), next(iter(services)), found)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(mode := os.lstat(path).st_mode):
            raise BrickdError(f"{path}: is not a regular file (mode {stat.filemode(mode)}): use another file")
    state_file.replace(path, _encoded(manifest))
    return manifest


def place_of(tensor: Document) -> TensorKey:
    """Return the tensor that a row of a document or of a manifest describes."""
    return TensorKey(tensor["shard"], tensor["tensor"], tensor["layer"], tensor["expert"])


def content_of(tensor: Document) -> ExpectedContent:
    """Return the content that a row of a document or of a manifest describes."""
    return ExpectedContent(tensor["dtype"], tuple(tensor["shape"]), tensor["checksum"])


def _encoded(manifest: Manifest) -> bytes:
    head = {
        "schema_version": SCHEMA_VERSION,
        "what": _WHAT,
        "service": manifest.service,
        "key": manifest.key,
        "saved": rfc3339(time.time_ns()),
    }
    rows = [json.dumps({**place._asdict(), **content._asdict()}) for place, content in manifest.tensors.items()]
    return (json.dumps(head)[:-1] + ', "tensors": [\n' + ",\n".join(rows) + "\n]}\n").encode()


def load(path: Path) -> Manifest:
    """Read a manifest; raise a BrickdError if the file is not a manifest."""
    try:
        content = _read(path)
    except OSError as error:
        why = f"{path}: cannot be read: {error.strerror}"
        raise BrickdError(f"{why} (brickd weights --save MANIFEST writes one)") from None
    try:
        document = json.loads(content)
        if not isinstance(document, dict) or document.get("what") != _WHAT:
            raise BrickdError(f"{path}: is not a manifest of weights (brickd weights --save MANIFEST writes one)")
        if document["schema_version"] != SCHEMA_VERSION:
            seen = str(document["schema_version"])[:20]
            raise BrickdError(
                f"{path}: has version {seen}, this brickd reads version {SCHEMA_VERSION}: save it again"
                " (brickd weights --save MANIFEST)"
            )
        return _judged(document)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise BrickdError(
            f"{path}: is not a valid manifest of weights ({why}): save it again (brickd weights --save MANIFEST)"
        ) from None


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise BrickdError(
                f"{path}: is not a regular file (mode {stat.filemode(status.st_mode)})"
                " (brickd weights --save MANIFEST writes one)"
            )
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise BrickdError(
            f"{path}: is larger than {BYTES_MAX >> 20} MiB, the limit of a manifest of weights"
            " (brickd weights --save MANIFEST writes one)"
        )
    return content


def _judged(document: dict[str, Any]) -> Manifest:
    key, service = document["key"], document["service"]
    if not isinstance(service, str) or not (key is None or _is_hex(key)):
        raise TypeError(
            f"service is {reprlib.repr(service)}, and key is {reprlib.repr(key)}, expected a name, and 16 digits or"
            " null"
        )
    found: dict[TensorKey, ExpectedContent] = {}
    for row in document["tensors"]:
        place, content = place_of(row), content_of(row)
        numbers = (place.layer, place.expert)
        if not all(isinstance(each, str) for each in (place.shard, place.tensor, content.dtype)):
            raise TypeError(f"shard, tensor or dtype of {reprlib.repr(place.tensor)} is not a name")
        if not all(each is None or type(each) is int for each in numbers) or not _is_hex(content.checksum):
            raise TypeError(
                f"layer, expert and checksum of {reprlib.repr(place.tensor)} are"
                f" {reprlib.repr((*numbers, content.checksum))}, expected"
                " numbers or null, and 16 digits"
            )
        if not all(type(each) is int for each in content.shape):
            raise TypeError(
                f"shape of {reprlib.repr(place.tensor)} is {reprlib.repr(content.shape)}, expected a list of numbers"
            )
        if place in found:
            raise ValueError(f"{place.tensor} is listed twice")
        found[place] = content
    return Manifest(key, service, found)


def _is_hex(value: object) -> bool:
    return isinstance(value, str) and len(value) == 16 and _CHECKSUM_DIGITS.issuperset(value)
