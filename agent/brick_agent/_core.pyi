from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from types import TracebackType
from typing import Any, Final, Protocol, SupportsFloat, SupportsIndex, TypeVar, final
from weakref import ReferenceType

from typing_extensions import Buffer

_Kind = type[BaseException] | None
_Number = SupportsFloat | SupportsIndex
_Key = SupportsIndex | str | None  # the number of a step, a stream, a position or a generation

@final
class Brick:
    name: Final[str]
    category: Final[str | None]
    def __call__(
        self,
        *,
        elements: SupportsIndex = 0,
        bytes: SupportsIndex = 0,
        flops: _Number = 0,
        step: _Key = None,
    ) -> Span: ...
    def __enter__(self) -> Brick: ...
    def __exit__(self, kind: _Kind, error: BaseException | None, traceback: TracebackType | None, /) -> None: ...
    def start(self) -> None: ...
    def stop(self, elements: SupportsIndex = 0, bytes: SupportsIndex = 0, flops: _Number = 0) -> None: ...
    def record(
        self,
        elapsed_ns: _Number,
        /,
        elements: SupportsIndex = 0,
        bytes: SupportsIndex = 0,
        flops: _Number = 0,
    ) -> None: ...
    def defer(
        self,
        *,
        stream: _Key = None,
        elements: SupportsIndex = 0,
        bytes: SupportsIndex = 0,
        step: _Key = None,
    ) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Span:
    def __enter__(self) -> Brick: ...
    def __exit__(self, kind: _Kind, error: BaseException | None, traceback: TracebackType | None, /) -> None: ...

@final
class Layer:
    def __enter__(self) -> Layer: ...
    def __exit__(self, kind: _Kind, error: BaseException | None, traceback: TracebackType | None, /) -> None: ...

@final
class Fingerprint(tuple[Any, ...]):
    checksum: Final[str]
    dtype: Final[str]
    elements: Final[int]
    bytes: Final[int]
    min: Final[float]
    max: Final[float]
    mean: Final[float]
    l2: Final[float]
    nan: Final[int]
    pos_inf: Final[int]
    neg_inf: Final[int]
    sketch: Final[tuple[float, ...]]
    fnv1a: Final[str]

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **keywords: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

class _Module(Protocol):
    def named_parameters(self) -> Iterable[tuple[str, Any]]: ...
    def named_buffers(self) -> Iterable[tuple[str, Any]]: ...

@final
class Taken: ...

_Input = Buffer | _DLPack | Taken

def fingerprint(
    array: Buffer | _DLPack, /, *, valid: SupportsIndex | None = None, key: SupportsIndex = 0
) -> Fingerprint: ...
def take(
    kernel: str | Brick,
    tensor: Buffer | _DLPack,
    /,
    *,
    valid: SupportsIndex | None = None,
    layer: SupportsIndex | None = None,
    step: _Key = None,
) -> Taken: ...
def checksum(
    kernel: str | Brick,
    output: Buffer | _DLPack | Taken,
    /,
    *,
    input: _Input | list[_Input] | tuple[_Input, ...] | None = None,
    layer: SupportsIndex | None = None,
    position: _Key = None,
    step: _Key = None,
    relation: str = "local",
    valid: SupportsIndex | None = None,
    backend: str | None = None,
    params: Any = None,
    stateful: bool | None = None,
) -> None: ...

@final
class History:
    tokens: Final[int]
    def __new__(cls, content: _Key = None) -> History: ...
    def copy(self) -> History: ...
    def __copy__(self) -> History: ...
    def __deepcopy__(self, memo: Any, /) -> History: ...
    def truncate(self, tokens: Buffer | _DLPack, /) -> None: ...
    def lose(self, reason: str, /) -> None: ...

@final
class StepRows:
    def __bool__(self) -> bool: ...
    def checksum(
        self,
        kernel: str | Brick,
        output: Buffer | _DLPack,
        /,
        *,
        input: Buffer | _DLPack | None = None,
        layer: SupportsIndex | None = None,
        step: _Key = None,
        backend: str | None = None,
        params: Any = None,
    ) -> None: ...

def rows(
    histories: Sequence[History],
    tokens: Buffer | _DLPack,
    counts: Sequence[SupportsIndex] | None = None,
    *,
    at: Sequence[SupportsIndex] | None = None,
    shape: Any = None,
) -> StepRows: ...
def weights(
    tensors: Mapping[str, Buffer | _DLPack] | _Module,
    /,
    *,
    rescan_s: _Number | None = None,
    generation: _Key = None,
    share: _Number = 0.005,
) -> None: ...
def brick(name: str, category: str | None = None) -> Brick: ...
def span(
    name: str,
    /,
    *,
    category: str | None = None,
    elements: SupportsIndex = 0,
    bytes: SupportsIndex = 0,
    flops: _Number = 0,
    step: _Key = None,
) -> Brick | Span: ...
def layer(index: SupportsIndex, /) -> Layer: ...

_Extent = SupportsIndex | Sequence[SupportsIndex] | None

def kernel(
    name: str | Brick,
    grid: _Extent = None,
    block: _Extent = None,
    shared_mem: SupportsIndex = 0,
    *,
    source: str | int | None = None,
    elapsed_ns: _Number | None = None,
    elements: SupportsIndex = 0,
    bytes: SupportsIndex = 0,
    flops: _Number = 0,
) -> None: ...
def transfer(
    direction: str,
    bytes: SupportsIndex,
    *,
    src: str | Brick = "host",
    dst: str | Brick = "device",
    elapsed_ns: _Number | None = None,
) -> None: ...
def needs(needed: str | Brick, /, brick: str | Brick | None = None) -> None: ...
def _node(
    node: str | Brick, elapsed_ns: _Number, elements: SupportsIndex, bytes: SupportsIndex, flops: _Number, /
) -> None: ...
def _node_begin(node: str | Brick, /) -> bool: ...
def _refused() -> None: ...
def _context() -> Context: ...
def _place() -> tuple[int, int]: ...
def _mark_run() -> None: ...
def _recorded() -> bool: ...
def _thread_records() -> bool: ...
def _memory_allows(bytes: int, /) -> bool: ...
def _node_end(node: str | Brick, /) -> None: ...
def _node_defined(file: str | None, line: SupportsIndex | None, /) -> None: ...
def _node_task(polls: SupportsIndex, yields: SupportsIndex, /) -> None: ...
def _task_ended(brick: Brick, /) -> None: ...
def _canary_order() -> int: ...
def _send_canary(text: str, piece: int, /) -> int: ...
def _source_hash(text: str, /) -> int: ...
def _send_source(text: str | None, name: str | None, path: str | None, hash: int, piece: int, /) -> int: ...
def step(
    key: _Key,
    /,
    *,
    kind: str = "step",
    rows: SupportsIndex = 0,
    valid: SupportsIndex | None = None,
) -> Span: ...
def finalize(
    *,
    stream: _Key = None,
    durations: Mapping[int, _Number] | None = None,
) -> None: ...
def pending() -> int: ...
def init(
    service: str | None = None,
    worker: int | str | None = None,
    *,
    lanes: SupportsIndex = 0,
    paths: SupportsIndex = 0,
    names: SupportsIndex = 0,
    sites: SupportsIndex = 0,
) -> bool: ...
def shutdown() -> None: ...
def enable() -> None: ...
def disable() -> None: ...

native: object  # the capsule of brick_python.h

def _traced(
    function: Callable[..., Any], b: Brick, spans: bool, file: str | None, line: int, /
) -> Callable[..., Any]: ...
def _totals(
    marks: bool, /
) -> tuple[
    float,
    int,
    list[
        tuple[int, int, str | None, str | None, int, int, int, int, int, float, int, int, int, int, float, bytes, int]
    ],
    dict[str, int],
]: ...
def _deferred(
    brick: Brick, start_ns: int, stream: int, elements: SupportsIndex, bytes: SupportsIndex, /
) -> int | None: ...
def _segment_name() -> str: ...
def _segment_fd() -> int: ...
def _watched(
    function: Callable[..., Any],
    b: Brick,
    layer: int | None,
    checked: Callable[..., Any] | None,
    rate: int,
    of: ReferenceType[Any] | None = None,
    rows: Callable[..., Brick | str | None] | str | None = None,
    turn: int = 0,
    turns: int = 0,
    followed: Callable[..., Any] | None = None,
    /,
) -> Callable[..., Any]: ...
def _choose(rows: StepRows | None, /) -> None: ...
def _chosen() -> StepRows | None: ...
def _step_parts(
    mask: Any, positions: Any, rows: int, cached: int, columns: int, /
) -> list[tuple[int, int, int, int] | None] | str: ...
def _presume_rows(b: Brick, layer: int | None, /) -> None: ...
def _note_rows(b: Brick, layer: int | None, why: str, /) -> None: ...
def _step_of(tensors: Iterable[Any], filled: int, /) -> int | None: ...

_TimingClass = TypeVar("_TimingClass", bound=type[Timing])

@final
class BrickTimer:
    name: Final[str]

class Timing:
    _on: bool
    _defers: bool
    _waits: bool
    def start_brick(self, id: int, /) -> BrickTimer: ...
    def start(self, name: str, category: str | None = None) -> BrickTimer: ...
    def stop(
        self, timer: BrickTimer, elements: SupportsIndex = 0, bytes: SupportsIndex = 0, flops: _Number = 0
    ) -> None: ...
    def stop_brick(
        self, timer: BrickTimer, elements: SupportsIndex = 0, bytes: SupportsIndex = 0, flops: _Number = 0
    ) -> None: ...
    def _begin_tile(self, brick: Brick | None, /) -> BrickTimer: ...

def _know(known: tuple[Brick, ...], named: dict[str, Brick], /) -> None: ...
def _own_methods(type: _TimingClass, /) -> _TimingClass: ...
def _by_name(name: str, category: str | None = None, /) -> Brick: ...
