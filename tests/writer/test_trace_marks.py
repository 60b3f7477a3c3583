"""Marks that `@brick.trace` records: where a function is defined, and the end of a task."""

from __future__ import annotations

import dtypes
import pytest
from conftest import readings
from faults import Start
from test_marks import marks, recorded

from brickd.shm import _reader
from brickd.shm.segment_copy import Reading


@pytest.mark.ci
def test_the_definition_of_a_function_is_sent_once_at_its_first_call(
    worker: Start, prefix: str, tmp_path: object
) -> None:
    got = recorded(
        worker,
        prefix,
        f"""
import sys
from pathlib import Path
folder = Path({str(tmp_path)!r})
(folder / "deep").mkdir()
(folder / "deep" / "model.py").write_text('''
import brick_agent as brick

@brick.trace
def plain(): pass

@brick.trace
def stream():
    yield 1

@brick.trace
async def waits(): pass

@brick.trace("named", waits=False)
async def task(): pass

@brick.trace
async def values():
    yield 1

class Model:
    @brick.trace
    @classmethod
    def made(cls): pass

@brick.trace
def never(): pass

made_here = brick.trace("made_here")(lambda: None)
builtin = brick.trace("builtin")(len)
''')
sys.path[:0] = [str(folder), "/"]
from deep import model
import asyncio
async def all_of():
    await model.waits()
    await model.task()
    async for _ in model.values(): pass
for _ in range(3):
    with brick.layer(2), brick.span("outer"): model.plain()
    model.plain(); list(model.stream()); asyncio.run(all_of()); model.Model.made(); model.made_here(); model.builtin([])
""",
    )
    found = {way: n for way, n in marks(got).items() if way[-1].endswith("defined")}
    assert found == {
        ("outer@2:ticks", "plain@2:ticks", "deep/model.py@4:defined"): 1,
        ("stream:ticks", "deep/model.py@7:defined"): 1,
        ("waits:ticks", "deep/model.py@11:defined"): 1,
        ("named:ticks", "deep/model.py@14:defined"): 1,
        ("values:ticks", "deep/model.py@17:defined"): 1,
        ("Model.made:ticks", "deep/model.py@22:defined"): 1,
    }


@pytest.mark.ci
def test_an_unimported_file_is_named_by_its_last_two_parts(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        r"""
def made(file):
    space = {"brick": brick}
    exec(compile("@brick.trace\ndef f(): pass", file, "exec"), space)
    return space["f"]
made("/nowhere/at/all/deep/kernels.py")()
made("<generated>")()
made("/nowhere/\ud800/x.py")()
""",
    )
    assert marks(got) == {("f:ticks", "deep/kernels.py@1:defined"): 1, ("f:ticks", "\\ud800/x.py@1:defined"): 1}


@pytest.mark.ci
def test_a_forked_child_sends_the_definitions_of_its_functions(worker: Start, prefix: str) -> None:
    process = worker(
        """
exec(compile("@brick.trace\\ndef f(): pass", "/deep/f.py", "exec"))
f(); f()
child = os.fork()
if child == 0:
    f(); f()
    pause()
    os._exit(0)
os.waitpid(child, 0)
"""
    )
    process.paused()
    found = [marks(each) for each in readings(prefix)]
    assert len(found) == 2
    assert [list(each.values()) for each in found] == [[1], [1]]
    process.go()
    assert process.end() == 0


def test_a_definition_called_while_off_is_sent_when_recording_starts(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
exec(compile("@brick.trace\\ndef f(): pass", "/deep/f.py", "exec"))
brick.disable(); f(); brick.enable(); f(); f()
""",
    )
    assert list(marks(got).values()) == [1]


def test_functions_that_wrap_themselves_are_traced(worker: Start, prefix: str) -> None:
    recorded(
        worker,
        prefix,
        """
def f(): return 7
f.__wrapped__ = f
assert brick.trace("f")(f)() == 7
""",
    )


@pytest.mark.parametrize(
    ("end", "polls"),
    [
        ("await t", 3),
        ("t.cancel()\n    try: await t\n    except asyncio.CancelledError: pass", 2),
        ("fail.append(1)\n    try: await t\n    except KeyError: pass", 2),
    ],
)
def test_the_last_resumption_of_a_task_is_marked_at_its_spans(worker: Start, prefix: str, end: str, polls: int) -> None:
    got = recorded(
        worker,
        prefix,
        f"""
import asyncio
fail = []
@brick.trace("task", waits=False)
async def task():
    for _ in range(2):
        await asyncio.sleep(0)
        if fail: raise KeyError
async def main():
    t = asyncio.ensure_future(task())
    await asyncio.sleep(0)
    {end}
with brick.layer(5), brick.span("unseen"): asyncio.run(main())
""",
    )
    ended = {way: n for way, n in marks(got).items() if way[-1].endswith("ended")}
    ((way, count),) = ended.items()
    assert (way[-1].split(":")[0], count) == ("task", 1)
    assert spans_at(got, way[:-1]) == polls


def spans_at(got: Reading, way: tuple[str, ...]) -> int:
    """Return the number of spans at the path that a mark names."""
    counts = dtypes.summaries(got.summaries)["count"]
    found = -1
    for place in way:
        (found,) = [
            number
            for number, path in enumerate(got.paths)
            if path is not None
            and path.unit == _reader.UNIT_TICKS
            and path.parent == found
            and place == f"{got.name(path.name)}{'' if path.layer < 0 else f'@{path.layer}'}:ticks"
        ]
    return int(counts[found])


def test_closed_tasks_and_asynchronous_generators_end_once(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
import asyncio
@brick.trace("closed", waits=False)
async def waiting():
    await asyncio.sleep(0)
begun = waiting(); begun.send(None); begun.close()
never = waiting(); never.close()
@brick.trace("values", waits=False)
async def values():
    for n in range(3):
        await asyncio.sleep(0)
        yield n
async def main():
    async for _ in values(): pass
    async for _ in (broken := values()): break
    await broken.aclose()
asyncio.run(main())
""",
    )
    ended = {way[-1]: n for way, n in marks(got).items() if way[-1].endswith("ended")}
    assert ended == {"closed:ended": 1, "values:ended": 2}
    assert spans_at(got, ("closed:ticks",)) == 2
