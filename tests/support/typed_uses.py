"""Code that uses the agent and that mypy must accept in scripts/lint. It is never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path
from typing import assert_type

import brick_agent as brick


@brick.trace
def plain(a: int, b: str = "x") -> bool:
    return str(a) == b


@brick.trace("named", category="ffn")
async def waits(a: int) -> str:
    return str(a)


@brick.trace("named", "ffn")
def by_place(a: int) -> int:
    return a


class Integer:
    """The type checker sees this class in place of numpy's integers."""

    def __index__(self) -> int:
        return 3


class Float:
    """The type checker sees this class in place of numpy's floats."""

    def __float__(self) -> float:
        return 3.0


@brick.trace(waits=False)
async def stream() -> AsyncGenerator[int, None]:
    yield 1


class Model:
    @brick.trace
    def forward(self, x: float) -> float:
        return x

    @classmethod
    @brick.trace
    def make(cls) -> Model:
        return cls()

    @brick.trace
    def tokens(self) -> Generator[str, None, int]:
        yield "a"
        return 1


class Parameters:
    """The type checker sees this class in place of torch's modules. Each method has more parameters than the agent
    uses.
    """

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, object]]:
        return iter([(prefix, None)])

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, object]]:
        return iter([(prefix, None)])


async def uses() -> None:
    assert_type(plain(1, b="y"), bool)
    assert_type(await waits(1), str)
    assert_type(stream(), AsyncGenerator[int, None])
    assert_type(Model.make().forward(1.0), float)
    assert_type(Model().tokens(), Generator[str, None, int])
    with brick.step("request-7", kind="decode", rows=8) as b:
        assert_type(b, brick.Brick)
    b.record(1.5, bytes=3)
    b.record(Float(), Integer(), bytes=Integer())
    b.record(Integer())
    assert_type(b.defer(), int)
    id = b.defer(stream=Integer(), elements=Integer(), bytes=1, step="request-7")
    brick.finalize(stream="upload", durations={id: Float()})
    brick.finalize(durations={id: 5})
    assert_type(brick.pending(), int)
    with b(elements=Integer(), bytes=Integer(), step=Integer()), brick.layer(Integer()):
        b.stop(Integer(), Integer())
    with brick.step(Integer(), rows=Integer(), valid=Integer()), brick.span("s", elements=Integer()):
        assert_type(by_place(1), int)
    brick.weights({"layers.0.w": b"numbers"}, rescan_s=Float(), generation="v2", share=0.01)
    brick.weights(Parameters(), generation=Integer())
    brick.weights([b"numbers"])  # type: ignore[arg-type]
    brick.weights({"w": "text"})  # type: ignore[dict-item]
    trace = brick.KernelTrace(b, Integer(), "token-7", "cuda", key=Integer()).with_input_checksum([b"x", b"y"])
    assert_type(trace.with_output_checksum(b"numbers", valid=Integer()).with_time_us(Float()), brick.KernelTrace)
    run = brick.TraceRun("new")
    run.add_trace(trace)
    assert_type(run.compare(brick.TraceRun.from_json(run.to_json()), rtol=0.1), brick.TraceReport)
    assert_type(run.compare_and_mark(run).expected_trace, brick.KernelTrace | None)
    brick.TraceRun(7)  # type: ignore[arg-type]
    run.compare("base")  # type: ignore[arg-type]
    ptx = brick.source("text", name="k", path=Path("k.ptx"))
    brick.kernel("k", Integer(), (1, Integer()), Integer(), source=ptx, elapsed_ns=Float(), flops=Float())
    brick.kernel(b, [16], block=None, source="text", elements=1, bytes=2)
    brick.transfer("H2D", Integer(), src="a", dst=b, elapsed_ns=5)
    brick.needs("qkv", brick=b)
    profiler = brick.BrickProfiler()
    assert_type(profiler.graph_push_scope(brick.ExecutionNode.Brick(brick.BrickId.RmsNorm, 5, 9)), str | None)
    assert_type(profiler.graph_record_kernel("k", ptx, (1, 1, 1), (32, 1, 1), 0), str | None)
    profiler.graph_record_transfer("a", "b", 1, brick.TransferDirection.D2H)
    brick.kernel("k", 1.5)  # type: ignore[arg-type]
    brick.transfer("H2D", "many")  # type: ignore[arg-type]
    profiler.graph_push_scope("Layer 0")  # type: ignore[arg-type]
    plain("wrong")  # type: ignore[arg-type]
    b.record("wrong")  # type: ignore[arg-type]
    b.stop(Float())  # type: ignore[arg-type]
    b.defer(7)  # type: ignore[call-arg]
    b.defer(stream=Float())  # type: ignore[arg-type]
    brick.finalize(durations={"x": 1})  # type: ignore[dict-item]
    brick.step(1, kinds="x")  # type: ignore[call-arg]
