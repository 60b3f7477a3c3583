"""The parts of a bundle that were made so far.

Owns: the redaction of each document, reason and note, the list of members, and whether one more has room. Must not
know: which parts there are, how one is made. Invariants: A document enters a redacted bundle only through `add`, which
redacts it. Each member is listed with the SHA-256 of the content that is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brickd.base.units import size
from brickd.bundle.bounded_call import CallResult, bounded_call
from brickd.bundle.document_redaction import DocumentRedaction
from brickd.bundle.manifest import (
    DOCUMENT_BYTES_MAX,
    MEMBERS_MAX,
    RECORDING_BYTES_MAX,
    TOTAL_BYTES_MAX,
    BundleMember,
    MissingPart,
    encoded,
)
from brickd.bundle.private_words import PrivateWords

_PART_SECONDS = 30.0
_PIECE_BYTES = 1 << 20
_SPARE_MEMBERS, _SPARE_BYTES = 2, 2 * DOCUMENT_BYTES_MAX  # for the manifest and README.txt, with their headers

Shows = Callable[[str], object]  # called several times a second with the name of the part that is being made


@dataclass
class BundleParts:
    """The parts made so far: the contents of members in memory, the files of recordings, and what is missing."""

    words: PrivateWords | None
    redaction: DocumentRedaction
    shows: Shows
    members: list[BundleMember] = field(default_factory=list)
    contents: dict[str, bytes | Path] = field(default_factory=dict)
    missing: list[MissingPart] = field(default_factory=list)

    def call(self, part: str, call: Callable[[], Any], seconds: float = _PART_SECONDS) -> CallResult:
        """Make a part in a process of its own."""
        self.shows(part)
        return bounded_call(call, seconds, DOCUMENT_BYTES_MAX, lambda: self.shows(part))

    def private(self, value: Any) -> Any:
        """Return a value redacted, if the bundle is redacted."""
        return value if self.words is None else self.words.value(self.redaction.document(value))

    def add(
        self, name: str, document: Any, about: str, *, notes: Sequence[str] = (), service: str | None = None
    ) -> None:
        """Add a document."""
        document = self.private(document)
        content = encoded(document)
        if not self._has_room(name, len(content), DOCUMENT_BYTES_MAX):
            return
        source = document.get("source") if isinstance(document, dict) else None
        self.contents[name] = content
        self.members.append(
            BundleMember(name, len(content), hashlib.sha256(content).hexdigest(), about, source,
                         tuple(self.private(list(notes))), self.private(service))
        )  # fmt: skip

    def add_file(self, name: str, path: Path, about: str) -> None:
        """Add a file that does not change any more."""
        length = path.stat().st_size
        if not self._has_room(name, length, RECORDING_BYTES_MAX):
            return
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
        self.contents[name] = path
        self.members.append(BundleMember(name, length, digest.hexdigest(), about))

    def _has_room(self, name: str, length: int, most: int) -> bool:
        """Whether the archive has room for a member; if not, note that it is missing."""
        before = sum(each.bytes for each in self.members)
        if length > most:
            self.lack(name, f"it has {size(length)}, expected at most {size(most)}")
        elif before + length > TOTAL_BYTES_MAX - _SPARE_BYTES or len(self.members) >= MEMBERS_MAX - _SPARE_MEMBERS:
            self.lack(
                name, f"the archive has {len(self.members)} members with {size(before)}, and no room for {size(length)}"
            )
        else:
            return True
        return False

    def lack(self, name: str, reason: str) -> None:
        """Note why a part is missing."""
        self.missing.append(MissingPart(name, self.private(reason)))
