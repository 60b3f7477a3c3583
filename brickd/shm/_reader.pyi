from collections.abc import Iterable, Sequence
from typing import TypedDict, final

from typing_extensions import Buffer

FORMAT: str
PREFIX: str
DIRECTORY: str
REMOVED_NAME: str
REMOVED_BYTES: int
REMOVED_MAX: int
REMOVED_READ_MAX: int
REMOVED_ROOM: int
REMOVED_ENDED: int
REMOVED_PRUNED: int
LOCK_WORKER: int
LOCK_CONSUMER: int
CLOCK_TSC: int
CLOCK_MONOTONIC: int
CONTROL: int
RATE_NONE: int
RATE_ALL: int
EPOCH_SECONDS: int
EPOCH_HOLDS: int
CONTROL_OFF: int
CONTROL_SPANS: int
KINDS: tuple[tuple[int, str, str, bool], ...]  # number, name, struct, whether it is an event
KIND_SPAN: int
KIND_STEP: int
KIND_DEFER: int
KIND_FINALIZE: int
KIND_MEASURED: int
KIND_CHECKED: int
KIND_SOURCE: int
KIND_STEP_TEXT: int
KIND_CANARY: int
CANARY_MAX: int
SOURCE_PIECE: int
SOURCE_MAX: int
SOURCE_LABEL: int
SOURCE_TEXT: int
SOURCE_END: int
SITE_STATEFUL: int
SITE_HISTORY: int
SITE_ROWS: int
CHECKED_MORE: int
CHECKED_POSITION: int
CHECKED_STEP: int
CHECKED_STATEFUL: int
CHECKED_WEIGHT: int
CHECKED_STATELESS: int
CHECKED_HISTORY: int
CHECKED_ROWS: int
TIER_TENSORS: int
TIER_ROWS: int
TIER_HISTORY: int
ROW_WORKERS_MAX: int
SITE_PRESUMED: int
CONTENTS_MIN: int
ROUNDED_NOT: int
ROUNDED_ONCE: int
SITE_OFF: int
LANES_MAX: int
NUMBERS_MAX: int
SITES_MAX: int
BUCKETS: int
BOUNDS: int
SUMMARY_BYTES: int
RECORDING_FIRST: int
BLOCK_BYTES: int
CHUNK_BYTES_MAX: int
CHUNK_END: int
CHUNK_RECORDS: int
CHUNK_WORKERS: int
CHUNK_SNAPSHOT: int
CHUNK_EVENTS: int
CHUNK_BEGINNING: int
CHUNK_TABLES: int
CHUNK_ENDING: int
CHUNK_WEIGHTS: int
CHUNK_SOURCE: int
CHUNK_KINDS: int
UNIT_TICKS: int
UNIT_NS: int
UNIT_DEFERRED: int
UNIT_BOUND: int
UNIT_LAUNCHED: int
UNIT_SHAPED: int
UNIT_H2D: int
UNIT_D2H: int
UNIT_D2D: int
UNIT_RETURNED: int
UNIT_NEEDS: int
UNIT_DEFINED: int
UNIT_ENDED: int
UNIT_NODE: int
UNIT_TASK: int
UNIT_ROWS: int
UNITS: int
PART_OUTER: int
PART_NS: int

class Header(TypedDict):
    magic: int
    major: int
    minor: int
    size: int
    lanes: int
    paths: int
    names: int
    sites: int
    span_slots: int
    event_slots: int
    buckets: int
    clock: int
    anchor_ticks: int
    anchor_ns: int
    started_ns: int
    process_start: int
    pid: int
    uid: int
    index: int
    uuid: bytes
    boot_id: bytes
    service: bytes
    coordinates: bytes
    rate: int

class ProcessCounters(TypedDict):
    names: int
    paths: int
    sites: int
    names_refused: int
    names_cut: int
    no_lane: int
    lanes_refused: int
    blocks_refused: int
    ended: int
    took: int
    sites_refused: int
    tensors_refused: int
    key: int
    weights: int
    scans: int
    rate: int

class Lane(TypedDict):
    begun: int
    summarized: int
    open: int
    current: int
    span_head: int
    span_attempts: int
    opened: int
    thread: int
    abandoned: int
    rejected: tuple[int, ...]
    nested: int
    unmatched: int
    amounts: int
    tails_refused: int
    span_dropped: tuple[int, ...]
    event_head: int
    event_attempts: int
    event_records: int
    event_dropped: tuple[int, ...]
    marks: int
    marks_refused: int
    weights_every: int
    weights_once: int
    rows_turns: int

class Consumer(TypedDict):
    span: tuple[int, int]
    event: tuple[int, int]
    spans_lost: int
    events_read: int

class Control(TypedDict):
    flags: int
    fingerprint_rate: int
    dump_site: int
    reopen: int
    weights: int
    attached: int
    epoch: int
    canary: int
    sites: tuple[int, ...]

class Removed(TypedDict):
    magic: int
    format: int
    reason: int
    crc: int
    uuid: bytes
    service: bytes
    coordinates: bytes
    index: int
    started_ns: int
    removed_ns: int
    took: int
    begun: int
    summarized: int
    rejected: tuple[int, ...]
    open: int
    abandoned: int
    nested: int
    no_lane: int
    span_attempts: int
    span_dropped: int
    event_attempts: int
    event_dropped: int
    marks: int
    marks_refused: int

class Row(TypedDict):
    count: int
    total_ns: float
    self_ns: float
    mean_ns: float
    deviation_ns: float
    min_ns: float
    max_ns: float
    p50_ns: float
    p90_ns: float
    p95_ns: float
    p99_ns: float
    p999_ns: float
    elements: int
    bytes: int
    flops: float
    worst: int
    spread: float

@final
class SegmentCopier:
    fetched: int
    def __new__(cls, fd: int) -> SegmentCopier: ...
    def header(self) -> Header: ...
    def process(self) -> ProcessCounters: ...
    def control(self) -> Control: ...
    def lanes(self) -> list[tuple[int, Lane, Consumer]]: ...
    def removed(self, reason: int, now_ns: int, /) -> bytes: ...
    def sums(self) -> tuple[int, int, tuple[int, ...]]: ...
    def extent(self) -> tuple[int, int, int, int, int, int]: ...
    def names(self) -> list[tuple[str, int] | None]: ...
    def paths(self) -> list[tuple[int, int, int, int] | None]: ...
    def sites(self) -> list[tuple[int, int, int] | None]: ...
    def summaries(self, lane: int = -1, /) -> tuple[Packed, int, int]: ...
    def ring(self, lane: int, events: bool, /) -> tuple[int, bytes]: ...

@final
class Fold:
    def add(
        self, summaries: Buffer, rows: Buffer, parents: Buffer, flags: Buffer, tick_ns: float, whose: int = 0, /
    ) -> None: ...
    def row(self, index: int, /) -> Row: ...
    def histogram(self, index: int, /) -> list[int]: ...
    def sums(self) -> list[tuple[int, float, int]]: ...

@final
class Durations:
    def add(
        self, summaries: Buffer, rows: Buffer, flags: Buffer, places: Buffer, ticks: Buffer, ns: Buffer, /
    ) -> list[tuple[int, int, int]]: ...
    def row(self, place: int, /) -> tuple[int, int, int, tuple[int, ...]]: ...

@final
class Drain:
    activity: int
    spans: int
    rejected: int
    skipped: int
    gaps: int
    checked: int
    fill: float
    held: float
    read: int
    resident: int
    breaks: int
    complete: bool
    ended: bool
    def __new__(cls, fd: int, cursors: Sequence[Sequence[int]] | None = None) -> Drain: ...
    def cursors(self) -> list[tuple[int, int, int, int, int]]: ...
    def salvage(self) -> None: ...
    def forget_details(self) -> None: ...
    def take_checked(self) -> bytes: ...
    def record_into(self, spool: Spool | None, worker: int = 0, /) -> None: ...
    def longest(self) -> list[tuple[int, int, int, int, int]]: ...
    def recent(self) -> bytes: ...

_Error = float | None
_Member = tuple[int, int, int]

class MatchColumns(TypedDict):
    fingerprints: int
    rows: list[tuple[int, int, int, int, _Error, _Error, _Error, _Error, int, tuple[int, int, int], list[_Member]]]
    sites: list[tuple[int, int, int, int, tuple[int, ...], int, int, int, int, float]]
    workers: list[tuple[int, int, int]]
    steps: tuple[int, int, int]

@final
class Fingerprints:
    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def unlike_all(self) -> int: ...
    @property
    def untracked(self) -> int: ...
    def __new__(cls, bytes_max: int, shares: bool = False) -> Fingerprints: ...
    def add(
        self,
        worker: int,
        service: int,
        shard: int,
        sites: Buffer,
        names: Buffer,
        records: Buffer,
        named: bool,
        leaves_out: int = 0,
        /,
    ) -> tuple[int, bytes]: ...
    def unlike(self) -> list[int]: ...
    def read(self, number: int, /) -> tuple[int, int, bytes] | None: ...
    def group(self, number: int, /) -> list[tuple[int, int, int, int]]: ...
    def forget(self, service: int, /) -> None: ...
    def extent(self, service: int, tier: int, /) -> tuple[int, int, int]: ...
    def drop(self, service: int, /) -> None: ...
    def mute(self, workers: Iterable[int], /) -> None: ...
    def counts(self) -> list[tuple[int, int, int, int, int, int, int, int]]: ...
    def births(self) -> list[tuple[int, int, int, int, tuple[int, int], tuple[int, int], tuple[int, int]]]: ...
    def select(
        self, workers: Iterable[int], numbers: Iterable[int], services: Iterable[int], /
    ) -> tuple[Fingerprints, list[int]]: ...
    def rounded(self, one: int, other: int, /) -> int: ...
    def contents(self, one: int, other: int, /) -> int: ...
    def rows_apart(self, service: int, tier: int, /) -> tuple[int, int]: ...
    def rows_repeated(self, service: int, site: int, /) -> int: ...
    @property
    def left_out(self) -> tuple[int, int, int]: ...
    def row_pairs(
        self, service: int, site: int, /
    ) -> list[
        tuple[
            int,
            int,
            int,
            tuple[int, int],
            tuple[int, int],
            tuple[int, int],
            tuple[tuple[int, int], tuple[int, int]],
            tuple[bool, bool],
        ]
    ]: ...
    def match(
        self,
        workers: Iterable[int],
        since: Iterable[int],
        by_input: bool,
        step: int | None = None,
        rtol: float = -1,
        rows_max: int = 4096,
        lost: Iterable[int] | None = None,
        worn: list[bool] | None = None,
        tier: int = 0,
        named: Iterable[tuple[int, int]] = (),
    ) -> MatchColumns: ...

@final
class Spool:
    refused_slots: int
    def __new__(cls, bytes: int = ..., values: bool = True, redacts: bool = False) -> Spool: ...
    def ready(self) -> tuple[int, set[int]]: ...
    def clear(self) -> None: ...
    def end(self) -> None: ...
    def key_name(self, name: int, /) -> int: ...
    def step(self, step: int, /) -> int: ...
    def tensors(self, slots: Buffer, /) -> bytes: ...
    def wake(self) -> None: ...
    def wait(self, milliseconds: int, /) -> None: ...

@final
class Recording:
    bytes: int
    chunks: int
    slots: int
    left_bytes: int
    refused_chunks: int
    refused_slots: int
    def __new__(
        cls,
        fd: int,
        limit_bytes: int,
        id: Buffer,
        made_ns: int,
        number: int = 0,
        ahead_bytes: int = ...,
        spare_bytes: int = 0,
    ) -> Recording: ...
    def append(self, kind: int, at_ns: int, body: Buffer, /) -> None: ...
    def append_records(self, at_ns: int, body: Buffer, /) -> None: ...
    def write(self, spool: Spool, mark: int, /) -> None: ...
    def close(self) -> None: ...

@final
class Summaries:
    def __new__(cls, bytes: Buffer = b"") -> Summaries: ...
    def add(self, path: int, duration: int, elements: int, bytes: int, /) -> None: ...
    def merge(self, other: Buffer, rows: Buffer, factor: float = 1.0) -> None: ...
    def subtract(self, then: Buffer, rows: Buffer, /) -> None: ...
    def tobytes(self) -> bytes: ...
    def packed(self) -> Packed: ...
    def __len__(self) -> int: ...

@final
class Packed:
    def __new__(cls, bytes: Buffer) -> Packed: ...
    @classmethod
    def of(cls, form: bytes, /) -> Packed: ...
    def form(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

def drain(
    segments: Iterable[Drain], first: int = 0, bytes: int = ..., /
) -> tuple[int, int, list[tuple[int, bytes | None, str | None]]]: ...
def tails(segments: Iterable[Drain], events: bool, /) -> list[tuple[int, int, bytes]]: ...
def rest(
    segments: Iterable[Drain], fds: tuple[int, int], interval_ms: int, looks: int, enough: float, /
) -> tuple[bool, bool]: ...
def watch(directory: str, /) -> int: ...
def write_all(writes: Iterable[tuple[int, int, bytes]], /) -> dict[int, int]: ...
def recording_title(bytes: Buffer, /) -> tuple[int, int, int, bytes, int, bytes]: ...
def find_chunk(key: bytes, blocks: Buffer, /) -> tuple[int, int, int, int, int, int] | None: ...
def recording_sum(key: bytes, blocks: Buffer, /) -> int: ...
def recorded_from(body: Buffer, /) -> tuple[int, int, int, int, int]: ...
def walk(slots: Buffer, at: int, wanted: int, /) -> int | None: ...
def checked(slots: Buffer, at: int, last: int, /) -> tuple[bytes, int, int, int, int]: ...
def tensor_error(one: Buffer, other: Buffer, /) -> float | None: ...
def rows_unsteady(pairs: Iterable[tuple[object, ...]], /) -> bool: ...
def weights_of(records: Buffer, sites: Buffer, tensors: dict[tuple[int, int], int], /) -> bytes: ...
def weights_held(
    records: Buffer, numbers: dict[bytes, int], contents: list[bytes], unused: list[int], most: int, /
) -> bytes: ...
def weights_put(
    records: Buffer,
    tensors: Buffer,
    contents: Buffer,
    uses: Buffer,
    generations: Buffer,
    ticks: Buffer,
    now: Buffer,
    first_ticks: Buffer,
    firsts: Buffer,
    named: Buffer,
    /,
) -> tuple[int, int, list[int]]: ...
def removed_layout() -> list[tuple[str, str, int, int, str]]: ...
def removed(content: Buffer, /) -> list[Removed | None]: ...
def is_removed(name: str, /) -> bool: ...
def append_removed(prefix: str, record: Buffer, /) -> bool: ...
def pieces(events: bytes, /) -> tuple[bytes, list[tuple[int, int, bytes]], list[tuple[int, int, bytes]]]: ...
def source_hash(text: Buffer, /) -> int: ...
def step_texts(events: Buffer, /) -> list[bytes]: ...
def span_rows(
    slots: Buffer,
    sequence: int,
    lost: int,
    paths: Buffer,
    knots: Buffer,
    longer_ns: int,
    has_step: bool,
    step: int,
    into: bytearray,
    /,
) -> tuple[int, int, int, int, int, int]: ...
def deferred_slots(slots: Buffer, at: int, sequence: int, /) -> tuple[bytes, int, int, int]: ...
def span_lines(
    rows: Buffer,
    track: bytes,
    places: Buffer,
    offsets: Buffer,
    kinds: tuple[bytes, ...],
    before: tuple[bytes, ...],
    end: bytes,
    none: bytes,
    quote: bytes,
    epoch_ns: int,
    into: bytearray,
    /,
) -> tuple[int, int]: ...

@final
class SpanTracks:
    def __init__(self) -> None: ...
    def place(self, rows: bytearray | memoryview, /) -> int: ...
    def events(
        self,
        rows: Buffer,
        names: Buffer,
        name_offsets: Buffer,
        events: Buffer,
        event_offsets: Buffer,
        sequences: Buffer,
        steps: int,
        into: bytearray,
        /,
    ) -> tuple[int, int, int]: ...

def recording_end(body: Buffer, /) -> tuple[int, int, int, int]: ...
def layout() -> list[tuple[str, str, int, int, str]]: ...
def later() -> list[tuple[str, str, int, int, str]]: ...
def clock_pair(kind: int, /) -> tuple[int, int]: ...
