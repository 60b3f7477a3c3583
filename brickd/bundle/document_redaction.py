"""The redaction of documents: what a redacted recording omits is omitted from the documents of a bundle, too.

Owns: which keys of a document are about tensors and steps, and what takes their place. Must not know: private words,
recordings, how a document is made. Invariants: Checksums and steps that were equal stay equal within a bundle, and
cannot be compared with anything else, because the key is random and is not stored. Statistics of tensors, positions and
texts of steps are null. A sentence that may mention a value of a tensor or a step is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from brickd.recording.redact import keeps_text

OMITTED = "omitted: the bundle is redacted"

_KEYED = frozenset(("checksum", "checksum_against", "fnv1a", "key", "params", "step", "stream"))
_NULL = frozenset(
    (
        "inputs_error",
        "l2",
        "max",
        "mean",
        "min",
        "norm",
        "position",
        "relative_error",
        "sketch",
        "step_text",
        "tolerance",
    )
)
_SENTENCES = frozenset(("diagnosis", "headlines"))
_TIMES_ONLY = "stragglers"  # the headlines of a document with this key are only about times
# The kinds of problems and alarms whose sentences mention values of tensors.
_ABOUT_TENSORS = frozenset(("weights", "numbers", "nan"))
_DIGITS = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{16}(?![0-9A-Za-z])")
_STEP = re.compile(r"--step[ =](?:'[^']*'|\"[^\"]*\"|\S+)")
_DIGEST_BYTES = 8


class DocumentRedaction:
    """Redacts the documents of one bundle with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def document(self, of: Any) -> Any:
        """Return a redacted copy of a document or of a part of it."""
        if isinstance(of, str):
            return self._text(of)
        if isinstance(of, list | tuple):
            return [self.document(each) for each in of]
        if not isinstance(of, dict):
            return of
        found = {key: self._member(key, value) for key, value in of.items()}
        if _TIMES_ONLY in of and "headlines" in of:
            found["headlines"] = self.document(of["headlines"])
        if "text" in of and not _keeps_text(of):
            found["text"] = OMITTED
            found["command"] = None if "number" in of else found.get("command")
        return found

    def _member(self, key: str, value: Any) -> Any:
        if key in _NULL:
            return None
        if key in _KEYED and isinstance(value, str):
            return self._digest(value)
        if key == "step" and type(value) is int:
            return self._digest(f"{value:016x}")
        if key in _SENTENCES and value is not None:
            return [OMITTED] if isinstance(value, list) else OMITTED
        return self.document(value)

    def _text(self, of: str) -> str:
        """Replace checksums and the names of steps in a text."""
        return _STEP.sub("--step redacted", _DIGITS.sub(lambda found: self._digest(found[0]), of))

    def _digest(self, of: str) -> str:
        return hashlib.blake2b(
            of.encode("utf-8", "surrogatepass"), key=self._key, digest_size=_DIGEST_BYTES
        ).hexdigest()


def _keeps_text(of: Mapping[str, Any]) -> bool:
    """Whether the sentence in `text` mentions no values of tensors and no steps."""
    kind = of.get("kind")
    if kind is not None and "number" in of:  # an event
        return keeps_text(str(kind))
    return kind not in _ABOUT_TENSORS and "evidence" not in of
