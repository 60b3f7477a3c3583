"""The writer in programs without Python, and its examples, built as documented."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import brick_agent
import dtypes
import pytest
from conftest import ROOT, SHM, WRITER, contents, kept, reading, readings, version
from faults import NATIVE, Compile, Start, counts, exact, native, program
from recorded import counts as paths
from recorded import events, summaries
from test_marks import marks

from brickd.shm._reader import UNIT_NODE as NODE
from brickd.shm.ledger import ledger_of
from brickd.shm.segment import open_segment

Example = Callable[..., str]
PARTS = ("include", "src", "examples")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def commands(name: str) -> list[str]:
    """Return the commands in the head of an example: the lines that build it, and the line that runs it."""
    text = (ROOT / "agent" / "examples" / name).read_text()
    lines = re.findall(r"^\W*\$ ((?:.*\\\n)*.*)", text, re.MULTILINE)
    return [re.sub(r"\\\n\W*(?=-)", "", line) for line in lines]


def after(lines: tuple[str, ...]) -> Path:
    """Return a copy of the distribution in which these commands have run. Other tests use the same copy, as they do
    with compiled files.

    If several examples begin with the same commands, these commands run only once. After that, each example has its own
    copy of the files that change.
    """

    def make(folder: Path) -> None:
        if lines:
            shutil.copytree(after(lines[:-1]), folder)
            subprocess.run(lines[-1], shell=True, check=True, cwd=folder / "examples", env=os.environ | {"PATH": PATH})
            return
        for part in PARTS:
            shutil.copytree(ROOT / "agent" / part, folder / part)

    ours = (path for part in PARTS for path in sorted((ROOT / "agent" / part).rglob("*.*")))
    installed = sorted(Path(brick_agent.get_include()).iterdir())
    tools = (sys.version.encode(), *(version(line.split()[0]) for line in lines))
    return kept("distribution", (repr(lines).encode(), *tools, *contents((*ours, *installed))), make)


@pytest.fixture
def example(compiled: Compile) -> Example:
    """Run the commands in the head of an example, and return the output of the last command.

    An engine that ends by itself would remove its segment. Here, the segment is kept for the test.
    """

    def run(name: str) -> str:
        *lines, last = commands(name)
        environment = {"PATH": PATH, "LD_PRELOAD": str(compiled("keep.so", (NATIVE / "keep.c",), "-shared", "-fPIC"))}
        folder = after(tuple(lines)) / "examples"
        return subprocess.run(
            last, shell=True, check=True, cwd=folder, env=os.environ | environment, stdout=subprocess.PIPE, text=True
        ).stdout

    return run


needs_rustc = pytest.mark.skipif(shutil.which("rustc") is None, reason="no rustc here")


@pytest.mark.ci
@pytest.mark.parametrize("name", ["engine.c", "engine.cpp", pytest.param("engine.rs", marks=needs_rustc)])
def test_the_engine_example_builds_as_documented_and_counts_every_span(
    example: Example, prefix: str, name: str
) -> None:
    assert example(name) == "200 requests, 4 failed\n"
    got = reading(prefix)
    assert got.service == "engine"
    # If a request fails, it fails in the norm of the first layer. All spans that are open at this moment must end.
    layers: dict[tuple[str, ...], int] = {
        ("request", f"{brick}[{n}]"): 196 for n in range(4) for brick in ("norm", "gemm")
    }
    assert paths(got) == {("request",): 200, ("request", "copy"): 200, **layers, ("request", "norm[0]"): 200}
    assert exact(got) == {"begun": 1972, "summarized": 1972}
    assert summaries(got)[("request",)]["elements"] == 200 * 8
    assert summaries(got)["request", "gemm[3]"]["bytes"] == 196 * 4 * (2 * 8 * 64 + 64 * 64)
    if name == "engine.cpp":
        wanted: dict[tuple[str, ...], int] = {("host→device:h2d",): 4}
        for n in range(4):
            launched = ("request:ticks", f"gemm@{n}:ticks", f"gemm_8x64@{n}:launched")
            wanted |= {launched: 196, (*launched, "<<<8,64,1>>> smem=16384B:shaped"): 196}
        assert marks(got) == wanted
    if name != "engine.rs":
        logged = events(got)
        assert [each["kind"] for each in logged] == ["defer", "measured", "finalize"] * 4
        assert {each["path"] for each in logged[::3]} == {("upload",)}
        assert {(each["elements"], each["bytes"]) for each in logged[::3]} == {(4 * 64 * 64, 4 * 4 * 64 * 64)}
        assert len({each["stream"] for each in logged[::3]}) == 4
        assert [each["id"] for each in logged[::3]] == [each["id"] for each in logged[1::3]]
        assert [each["stream"] for each in logged[::3]] == [each["stream"] for each in logged[2::3]]


def test_the_readme_and_the_engine_example_have_the_same_build_command() -> None:
    head = (ROOT / "agent" / "examples" / "engine.c").read_text().partition("*/")[0]
    lines = [line for line in head.splitlines() if line.startswith(" *   $ ")]
    assert "\n".join(line.removeprefix(" *   ") for line in lines[:-1]) in (ROOT / "agent" / "README.md").read_text()


def test_the_extension_example_builds_as_documented_and_shares_its_segment(example: Example, prefix: str) -> None:
    example("extension.c")
    got = reading(prefix)
    assert paths(got) == {("multiply",): 5, ("multiply", "gemm"): 110}
    assert exact(got) == {"begun": 115, "summarized": 115}


@pytest.mark.slow
def test_spans_recorded_by_a_constructor_are_counted(compiled: Compile, prefix: str, tmp_path: Path) -> None:
    source = tmp_path / "early.c"
    source.write_text(
        """
        #include "brick_agent.h"
        #include <unistd.h>
        __attribute__((constructor)) static void early(void)
        {
            uint32_t brick = brick_name("early", 5, NULL);
            brick_begin(brick, NULL, NULL);
            brick_end(brick, NULL, 0, 0);
        }
        int main(void)
        {
            char turn;
            return write(1, "1\\n", 2) == 2 && read(0, &turn, 1) == 1 ? 0 : 4;
        }
        """
    )
    with native(compiled("early", (source, *WRITER))) as process:
        process.next_report()
        got = reading(prefix)
        assert counts(got) == {"early": 1}
        assert exact(got) == {"begun": 1, "summarized": 1}
        process.go()
        assert process.end() == 0


@pytest.mark.ci
def test_an_unassigned_kernel_number_has_no_site_and_touches_no_memory(
    compiled: Compile, prefix: str, tmp_path: Path
) -> None:
    """If /dev/shm is full, an access to a page without memory would end the process."""
    source = tmp_path / "never.c"
    source.write_text(
        """
        #include "brick_agent.h"
        #include <stdio.h>
        #include <sys/stat.h>
        #include <unistd.h>
        static long blocks(void)
        {
            struct stat status;
            return fstat(brick_segment_fd(), &status) == 0 ? (long)status.st_blocks : -1;
        }
        int main(void)
        {
            static const int64_t shape[] = {1};
            const struct brick_tensor tensor = {
                .data = "x", .dtype = BRICK_UINT8, .dims = 1, .shape = shape, .valid = BRICK_ALL_ROWS};
            const uint32_t kernels[] = {
                brick_name("kernel", 6, NULL), 2, 63, 64, 1000, 4095, 4096, 65535, 65536, BRICK_UNNAMED};
            struct brick_taken taken;
            char turn;
            long taken_before = 0;
            for (unsigned n = 0; n < sizeof kernels / sizeof *kernels; n++) {
                if (brick_take(kernels[n], NULL, NULL, &tensor, &taken) != NULL)
                    return 3;
                brick_checksum(kernels[n], NULL, NULL, &taken, NULL, 0);
                if (n == 0)
                    taken_before = blocks();
            }
            printf("%ld\\n", blocks() - taken_before);
            fflush(stdout);
            return read(0, &turn, 1) == 1 ? 0 : 4;
        }
        """
    )
    with native(compiled("never", (source, *WRITER))) as process:
        assert process.next_report() == 0
        got = reading(prefix)
        assert [site and got.name(site.name) for site in got.sites] == ["kernel"]
        assert got.process["sites_refused"] == 9
        process.go()
        assert process.end() == 0


@pytest.mark.ci
def test_an_unloaded_writer_ends_as_at_exit_and_can_be_loaded_again(compiled: Compile, prefix: str) -> None:
    writer = compiled("writer.so", WRITER, "-shared", "-fPIC")
    with native(compiled("unload", (NATIVE / "unload.c",)), str(writer)) as process:
        assert process.next_report() == 5
        assert exact(reading(prefix)) == {"begun": 5, "summarized": 5}
        process.go()
        assert process.next_report() == 0
        assert readings(prefix) == []
        process.go()
        assert process.next_report() == 7
        assert exact(reading(prefix)) == {"begun": 7, "summarized": 7}
        process.go()
        assert process.end() == 0


def test_two_writers_in_one_process_coexist(worker: Start, compiled: Compile, prefix: str) -> None:
    for n in range(65):  # with this number of files, a worker that starts looks for dead segments
        (SHM / f"{prefix}{n}").touch()
    writer = compiled("writer.so", WRITER, "-shared", "-fPIC")
    process = worker(
        f"""
        import ctypes
        brick.init()
        second = ctypes.CDLL({str(writer)!r})
        second.brick_segment_name.restype = ctypes.c_char_p
        assert second.brick_init(None) == 2
        report([_core._segment_name(), second.brick_segment_name().decode()])
        pause()
        """
    )
    for file in process.next_report():
        with open_segment(file) as segment:
            assert segment.identity().pid == process.pid
    process.paused()
    process.go()
    assert process.end() == 0


DONE, FIRST, LAST, JOINED, REFUSED, UNMATCHED = 0, 1, 2, 4, 8, 16


@pytest.mark.ci
def test_a_c_program_makes_graph_nodes_and_gets_each_refusal(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "nodes")) as process:
        outcomes = process.next_report()
        got = reading(prefix)
        process.go()
        assert process.end() == 0
    assert outcomes == [
        *(JOINED, FIRST, DONE, DONE, DONE, DONE, DONE, DONE, DONE, LAST),
        *(FIRST, FIRST, DONE, LAST, DONE, LAST),  # the nodes of two tasks overlap
        *(REFUSED, REFUSED, FIRST, REFUSED, REFUSED, UNMATCHED, LAST, UNMATCHED),
        *(REFUSED, FIRST | REFUSED, DONE, LAST, DONE),
    ]
    decode = ("decode:node",)
    assert marks(got) == {
        ("norm:node",): 2,  # the second launch is in a node without a name
        (*decode, "server.c@42:defined"): 1,
        (*decode, "norm:launched"): 1,
        (*decode, "task:node", "other:defined"): 1,
        (*decode, "task:node", "other:task"): 1,
        (*decode, "other:task"): 1,
        ("task:node", "other:task"): 1,
        ("task:node",): 1,
    }
    row = dtypes.summaries(got.summaries)[next(n for n, path in enumerate(got.paths) if path and path.unit == NODE)]
    assert [int(row[of]) for of in ("total", "min", "max", "elements", "bytes")] == [5000, 0, 5000, 10, 20]
    assert sum(lane["amounts"] for _, lane, _ in got.lanes) == 3
    assert ledger_of(got).marks["refused"] == 5
    assert exact(got) == {"begun": 1, "summarized": 1, "unmatched": 2}
