"""The directory of segments: which of its files can be drained, and what is wrong with the others.

Owns: what is known of files that are not drained, and when they are tried again. Must not know: who a file's worker is,
what is in it. Invariants: a file costs itself alone; one with which something is wrong is opened once, told once, and
looked at again only when another file has its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from brickd import _reader
from brickd.errors import NotPermitted, SegmentRefused, SegmentUndrained, SegmentUnpublished
from brickd.events import Tell
from brickd.files import File, Identifier, find, identifier_of, open_file

TOLD_MAX = 16  # of one look; the rest is counted


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A file with a segment's name that is not drained, and why."""

    identifier: Identifier
    refused: SegmentRefused

    def is_still(self, identifier: Identifier) -> bool:
        """Whether there is no reason to look at it again."""
        return self.identifier == identifier and not isinstance(self.refused, SegmentUndrained)


class Directory:
    """What lies there.

    Attributes:
        quarantined: by file.
        foreign: how many segments we may not read.
    """

    def __init__(self, prefix: str, tell: Tell, patience_ns: int) -> None:
        """Nothing is known of it yet.

        Args:
            prefix: what the names of segments begin with.
            tell: who is told.
            patience_ns: so long a file may be unpublished before it is removed.
        """
        self.quarantined: dict[str, Quarantined] = {}
        self.foreign = 0
        self._prefix, self._tell, self._patience_ns = prefix, tell, patience_ns
        self._blind = ""
        self._unpublished: dict[str, tuple[Identifier, int]] = {}  # since when

    @property
    def waits_for_any(self) -> bool:
        """Whether a file that is not drained now may be later."""
        return any(isinstance(each.refused, SegmentUndrained) for each in self.quarantined.values())

    @property
    def waits(self) -> bool:
        """Whether a file is being made."""
        return bool(self._unpublished)

    def look(self, now_ns: int, ours: Mapping[Identifier, File], attach: Callable[[str], None]) -> bool:
        """Have those drained that came; False: the directory cannot be listed.

        Args:
            now_ns: a clock that never goes back.
            ours: what is drained already; of one that was renamed the name is set right.
            attach: drains a file, or raises why it does not.
        """
        try:
            there = find(self._prefix)
        except OSError as error:
            self._tell_blind(error.strerror or str(error))
            return False
        self._blind = ""
        for gone in set(self.quarantined) - set(there):
            del self.quarantined[gone]
        identifiers = {file: identifier for file in there if (identifier := identifier_of(file)) is not None}
        self.foreign = 0
        waiting, self._unpublished = self._unpublished, {}
        bad, untold = len(self.quarantined), 0
        for file, identifier in identifiers.items():
            known_bad = self.quarantined.get(file)
            if known_bad and known_bad.is_still(identifier):
                continue
            if (segment := ours.get(identifier)) is not None:
                if identifiers.get(segment.name) != identifier:
                    segment.name = file  # somebody renamed it
                continue
            try:
                attach(file)
                self.quarantined.pop(file, None)
            except SegmentUnpublished:
                before, since_ns = waiting.get(file, (identifier, now_ns))
                if before != identifier:
                    since_ns = now_ns
                if now_ns - since_ns < self._patience_ns or not _removed(file, identifier):
                    self._unpublished[file] = identifier, since_ns
            except SegmentRefused as error:
                quiet = len(self.quarantined) - bad >= TOLD_MAX
                untold += self.quarantine(file, identifier, error, quiet=quiet)
            except NotPermitted:
                self.foreign += 1
        if untold:
            self._tell("quarantined", f"and {untold:,} more files", command="brickd workers")
        return True

    def quarantine(self, file: str, identifier: Identifier, error: SegmentRefused, *, quiet: bool = False) -> bool:
        """Remember what is wrong with a file; whether that is yet to be told."""
        before = self.quarantined.get(file)
        self.quarantined[file] = Quarantined(identifier, error.with_traceback(None))
        if before is not None and before.refused.reason == error.reason:
            return False
        if not quiet:
            self._tell("quarantined", f"{file}: {error.reason}", command="brickd doctor")
        return quiet

    def refused(self) -> dict[str, SegmentRefused]:
        """By file, what does not add up."""
        # A copy first: who asks is another thread.
        return {
            file: each.refused
            for file, each in list(self.quarantined.items())
            if not isinstance(each.refused, SegmentUndrained)
        }

    def _tell_blind(self, why: str) -> None:
        if why != self._blind:
            text = f"{_reader.DIRECTORY} cannot be listed ({why}): who starts now is not seen"
            self._tell("blind", text, command="brickd doctor")
        self._blind = why


def _removed(file: str, identifier: Identifier) -> bool:
    """Remove what a worker left that died before it had published it."""
    try:
        with open_file(file) as left:
            return left.worker() is None and left.identifier == identifier and left.unlink()
    except (SegmentRefused, NotPermitted):
        return False
