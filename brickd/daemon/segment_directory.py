"""The directory of segments: which files can be drained, and why the others cannot.

Owns: the state of files that are not drained, and when they are tried again. Must not know: the worker of a file, the
content of a file. Invariants: An invalid file affects no other file. An invalid file is opened once and reported once.
It is tried again only if another file gets its name, or if it is a copy and the original is removed. A file that stays
unpublished is tried less often after some time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from brickd.analysis.problem import problem_id
from brickd.errors import (
    NoDescriptor,
    NotPermitted,
    SegmentCopy,
    SegmentRefused,
    SegmentUndrained,
    SegmentUnpublished,
)
from brickd.model.event_log import LogEvent
from brickd.shm import _reader
from brickd.shm.segment_files import (
    EXHAUSTED,
    NO_OWNERS,
    Identifier,
    Owners,
    SegmentFile,
    identifier_of,
    listing,
    open_file,
)

REPORTED_MAX = 16  # the most files that one look reports; the others are counted


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A file with a segment's name that is not drained, and the reason."""

    identifier: Identifier
    refused: SegmentRefused

    def is_still(self, identifier: Identifier, there: Container[Identifier]) -> bool:
        """Whether the file need not be tried again; `identifier` belongs to the file that has the name now."""
        if isinstance(self.refused, SegmentCopy) and self.refused.original not in there:
            return False
        return self.identifier == identifier and not isinstance(self.refused, SegmentUndrained)


@dataclass(frozen=True, slots=True)
class _Unpublished:
    identifier: Identifier
    since_ns: int
    looked_ns: int


class Directory:
    """The files with a segment's name.

    Attributes:
        quarantined: the quarantined files, by name.
        others: the owners of other users' files.
        waits: whether to search again soon, because a file is not published yet.
        starved: whether the last search ran out of file descriptors.
    """

    def __init__(
        self, prefix: str, log_event: LogEvent, patience_ns: int, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Begin without known files.

        A file may stay unpublished for `patience_ns`. After that time, the file is removed if its worker is dead. If
        the worker is alive, the file is tried again whenever `patience_ns` have passed.
        """
        self.quarantined: dict[str, Quarantined] = {}
        self.others: Owners = NO_OWNERS
        self.listing_ns = 0
        self.waits = self.starved = False
        self._prefix, self._log_event, self._patience_ns, self._clock = prefix, log_event, patience_ns, clock
        self._blind = ""
        self._unpublished: dict[str, _Unpublished] = {}

    @property
    def waits_for_any(self) -> bool:
        """Whether any file that is not drained now may be drained later."""
        return any(isinstance(each.refused, SegmentUndrained) for each in self.quarantined.values())

    def look(
        self,
        now_ns: int,
        ours: Mapping[Identifier, SegmentFile],
        attach: Callable[[str], None],
        goes_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Attach new files; return False if the directory cannot be listed, or if `goes_on` returned False.

        Args:
            now_ns: a monotonic time.
            ours: the drained segments; a renamed segment gets its new name.
            attach: begins to drain a file, or raises the reason why the file cannot be drained.
            goes_on: called before each file; False ends the search.
        """
        self.waits = self.starved = False
        try:
            began_ns = self._clock()
            there, self.others = listing(self._prefix, self.others)
            self.listing_ns = self._clock() - began_ns
        except OSError as error:
            self.starved = error.errno in EXHAUSTED
            self._log_blind(error.strerror or str(error))
            return False
        self._blind = ""
        for gone in self.quarantined.keys() - set(there):
            del self.quarantined[gone]
        identifiers = {file: identifier for file in there if (identifier := identifier_of(file)) is not None}
        present = set(identifiers.values())
        waiting, self._unpublished = self._unpublished, {}
        bad, untold = len(self.quarantined), 0
        for file, identifier in identifiers.items():
            if not goes_on():
                return False
            known_bad = self.quarantined.get(file)
            if known_bad and known_bad.is_still(identifier, present):
                continue
            if (segment := ours.get(identifier)) is not None:
                if identifiers.get(segment.name) != identifier:
                    segment.name = file  # the file was renamed
                continue
            before = waiting.get(file)
            if before is None or before.identifier != identifier:
                before = _Unpublished(identifier, now_ns, now_ns)
            elif self._rests(before, now_ns):
                self._unpublished[file] = before
                continue
            try:
                if _published(file, attach):
                    self.quarantined.pop(file, None)
                else:
                    self._wait(file, replace(before, looked_ns=now_ns))
            except SegmentRefused as error:
                if identifier_of(file) is None:
                    continue  # the file was removed after the listing
                self.starved |= isinstance(error, NoDescriptor)
                quiet = len(self.quarantined) - bad >= REPORTED_MAX
                untold += self.quarantine(file, identifier, error, quiet=quiet)
            except NotPermitted:  # a file of another user took the name after the listing
                continue
        if untold:
            self._log_event("quarantined", f"{untold:,} more files are quarantined", command="brickd workers")
        return True

    def _rests(self, unpublished: _Unpublished, now_ns: int) -> bool:
        old = unpublished.looked_ns - unpublished.since_ns >= self._patience_ns
        return old and now_ns - unpublished.looked_ns < self._patience_ns

    def _wait(self, file: str, unpublished: _Unpublished) -> None:
        """Try a file again later, or remove it if its worker is dead, or raise SegmentRefused."""
        if unpublished.looked_ns - unpublished.since_ns < self._patience_ns:
            self.waits = True
        elif _removed(file, unpublished.identifier):
            return
        self._unpublished[file] = unpublished

    def quarantine(self, file: str, identifier: Identifier, error: SegmentRefused, *, quiet: bool = False) -> bool:
        """Note why a file is not drained; return whether this must be reported."""
        before = self.quarantined.get(file)
        self.quarantined[file] = Quarantined(identifier, error.with_traceback(None))
        if before is not None and before.refused.reason == error.reason:
            return False
        if not quiet:
            problem = problem_id("quarantined", None, str(error.path))
            self._log_event("quarantined", f"{file}: {error.reason}", command="brickd doctor", problem=problem)
        return quiet

    def refused(self) -> dict[str, SegmentRefused]:
        """Return the invalid files, by name."""
        # The items are copied first, because another thread calls this.
        return {
            file: each.refused
            for file, each in list(self.quarantined.items())
            if not isinstance(each.refused, SegmentUndrained)
        }

    def _log_blind(self, why: str) -> None:
        if why != self._blind:
            text = f"{_reader.DIRECTORY}: cannot be listed: {why}; the daemon does not find workers that start now"
            self._log_event("blind", text, command="brickd doctor")
        self._blind = why


def _published(file: str, attach: Callable[[str], None]) -> bool:
    try:
        attach(file)
    except SegmentUnpublished:
        return False
    return True


def _removed(file: str, identifier: Identifier) -> bool:
    """Remove the unpublished file of a dead worker, or raise SegmentRefused; return False if the worker is alive."""
    with open_file(file) as left:
        if left.worker() is not None or left.identifier != identifier:
            return False
        try:
            return left.unlink()
        except NotPermitted:
            reason = "its worker died before it published the file, which cannot be removed: permission denied"
            raise SegmentRefused(file, reason) from None
