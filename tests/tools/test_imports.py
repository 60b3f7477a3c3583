"""The architecture: the direction of imports, and modules that are imported late."""

from __future__ import annotations

import ast
import functools
import graphlib
import itertools
import os
import pickle
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import brick_agent
import pytest
from conftest import ROOT
from faults import Start
from verbs import started

from brickd import errors
from brickd.divergence import Divergence
from brickd.query import queries
from brickd.query.verbs import VERBS

# The rooms (packages) in the order of the data flow. A module imports only from its own room and from the rooms to its
# left.
ROOMS = (
    *("base", "shm", "query", "client", "model", "analysis", "state", "datasources", "recording", "views", "screens"),
    *("results", "doctor", "export", "bundle", "metrics", "web", "api", "daemon", "launch", "demo", "top", "cli"),
)
# Public modules outside of the rooms, and the rooms from which they may import.
LIBRARY = ("brickd.divergence", "brickd.profile")
FLAT = {"brickd": 0, "brickd.errors": 1, "brickd.__main__": len(ROOMS)}
FLAT |= dict.fromkeys(LIBRARY, ROOMS.index("export") + 1)
# Modules that are loaded by processes other than brickd's own: the workers of the demonstration, and each Python that
# `brickd run` starts.
PROGRAMS = {"brickd.demo.transformer", "brickd.demo.worker", "brickd.launch.site.sitecustomize"}


def sources(folder: Path) -> Iterator[Path]:
    """Return the Python files and stubs in a folder, including folders to which it has links."""
    for root, _, names in os.walk(folder, followlinks=True):
        yield from (Path(root, name) for name in names if name.endswith((".py", ".pyi")))


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sources(ROOT / "brickd"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements, including nested ones. Skip expressions, because they would take longer."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, part, []))
        for part in ("handlers", "cases"):
            for branch in getattr(statement, part, ()):
                yield from statements(branch.body)


@functools.cache  # cached, because several tests need the same modules
def source(path: Path) -> str:
    return path.read_text()


@functools.cache
def imports_and_classes(path: Path) -> tuple[list[ast.Import | ast.ImportFrom], list[str]]:
    found = [*statements(ast.parse(source(path)).body)]
    imports = [node for node in found if isinstance(node, ast.Import | ast.ImportFrom)]
    classes = [node for node in found if isinstance(node, ast.ClassDef)]
    # Nested classes are not listed, because their full names contain the outer class, as in ExecutionNode.Layer.
    inner = {part for outer in classes for part in outer.body}
    return imports, [node.name for node in classes if node not in inner]


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in imports_and_classes(path)[0]:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.level:  # a relative import: the file is shared by brickd and the agent
            names.add(".".join((*path.relative_to(ROOT).parent.parts, node.module or "")))
        elif node.module is not None:
            within = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= within if within <= modules().keys() else within | {node.module}
    return {name for name in names if name in modules() or name.split(".")[0] == "brick_agent"}


@pytest.mark.ci
def test_no_module_imports_itself_indirectly() -> None:
    order = graphlib.TopologicalSorter({name: imported(path) - {name} for name, path in modules().items()})
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def included(source: Path) -> set[Path]:
    """Return the C files whose headers a file includes, directly or through headers that have no C file."""
    found: set[Path] = set()
    for name in re.findall(r'^#include "(.+)"$', source.read_text(), re.MULTILINE):
        header = (source.parent / name).resolve()
        if header.with_suffix(".c").exists():
            found.add(header.with_suffix(".c"))
        elif header.exists():
            found |= included(header)
    return found


@pytest.mark.ci
def test_no_c_file_includes_its_own_header_indirectly() -> None:
    sources = [path for folder in ("agent/src", "brickd/reader") for path in (ROOT / folder).rglob("*.c")]
    assert len(sources) > 70
    order = graphlib.TopologicalSorter({path: included(path) - {path} for path in sources})
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of files: {' <- '.join(path.name for path in error.args[1])}")


@pytest.mark.ci
def test_imports_go_only_to_earlier_rooms() -> None:
    def room(module: str) -> int:
        return -1 if module in ("brickd", "brickd.errors") else ROOMS.index(module.split(".")[1])

    for name, path in modules().items():
        knows = FLAT[name] if name in FLAT else room(name) + 1
        for other in imported(path) - set(LIBRARY):
            if other.startswith("brickd"):
                assert room(other) < knows, f"{name} imports {other}, which is in a room to the right"


def test_only_public_modules_are_outside_of_the_rooms() -> None:
    assert {path.parent.name for path in (ROOT / "brickd").glob("*/__init__.py")} == set(ROOMS)
    assert {path.stem for path in (ROOT / "brickd").glob("*.py")} == {
        "__init__", "__main__", "errors", "divergence", "profile",
    }  # fmt: skip


def test_only_modules_that_are_found_by_their_names_have_less_than_40_lines() -> None:
    # Modules that brickd loads by name (one for each verb and each view), and modules that Python loads itself.
    found = {f"brickd.cli.{verb}" for verb in VERBS}
    found |= {f"brickd.views.{name.removesuffix('Query').lower()}" for name in vars(queries) if name.endswith("Query")}
    found |= {name for name, path in modules().items() if path.name in ("__init__.py", "__main__.py")}
    short = {name for name, path in modules().items() if len(path.read_text().splitlines()) < 40}
    assert short - found == {"brickd.analysis.roofline._peaks"}  # the only exception is the stub of a C file
    of_agent = [path for path in sources(ROOT / "agent/brick_agent") if path.name != "__init__.py"]
    assert [path for path in of_agent if len(path.read_text().splitlines()) < 40] == []


@pytest.mark.ci
def test_a_public_class_name_means_one_thing() -> None:
    homes = defaultdict(list)
    for path in (path for root in ("brickd", "agent/brick_agent") for path in sources(ROOT / root)):
        for name in imports_and_classes(path)[1]:
            if not name.startswith("_"):
                homes[name].append(path.resolve())  # brickd links to some files of the agent
    twice = {name for name, paths in homes.items() if len(set(paths)) > 1}
    assert twice == {"KernelTrace"}  # this name is public in both distributions, because they never import each other


def imported_of(path: Path, *names: str) -> set[str]:
    """Return the imports that begin with one of these names. Parse only a file that may have one: parsing is slow."""
    text = f"{path.relative_to(ROOT)} {source(path)}"  # a relative import does not contain the name of its package
    if not any(all(word in text for word in name.split(".")[-2:]) for name in names):
        return set()
    return {each for each in imported(path) if each.startswith(names)}


def test_each_test_module_has_its_own_name() -> None:
    """pytest imports test modules by their names alone. So two modules of one name cannot run together."""
    modules = sorted(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [one for one, other in itertools.pairwise(modules) if one == other] == []


def test_brickd_and_the_agent_never_import_each_other() -> None:
    for name in modules().keys() - PROGRAMS:
        assert not imported_of(modules()[name], "brick_agent"), name
    for path in sources(ROOT / "agent/brick_agent"):
        assert not imported_of(path, "brickd"), path


def test_programs_and_brickd_never_import_each_other() -> None:
    for name, path in modules().items():
        if name in PROGRAMS:
            assert imported_of(path, "brickd") <= PROGRAMS, name
        else:
            assert not imported_of(path, *PROGRAMS) & PROGRAMS, name


def test_the_files_that_brickd_and_the_agent_share_import_only_each_other() -> None:
    shared = {name for name, path in modules().items() if (ROOT / "agent") in path.resolve().parents}
    assert {"brickd.launch", "brickd.launch.site.sitecustomize", "brickd.model.calltree.graph_nodes"} < shared
    for name in shared - PROGRAMS:
        assert imported(modules()[name]) <= shared - PROGRAMS, name


def test_every_public_name_of_the_agent_is_defined_once() -> None:
    assert sorted(brick_agent.__all__) == brick_agent.__all__
    for name in brick_agent.__all__:
        assert getattr(brick_agent, name).__doc__, f"brick_agent.{name} is not documented"


def test_a_pickle_uses_the_public_path_of_a_class() -> None:
    for name in brick_agent.__all__:
        public = getattr(brick_agent, name)
        if isinstance(public, type):
            assert public.__module__ == "brick_agent"
            assert pickle.loads(pickle.dumps(public)) is public
    assert (Divergence.__module__, errors.BrickdError.__module__) == ("brickd.divergence", "brickd.errors")


@pytest.mark.ci
def test_a_pickle_from_before_the_modules_moved_can_be_loaded() -> None:
    # This runs in a new process that has imported nothing. So the pickle itself must import what it needs.
    load = f"""
import pickle
old = pickle.load(open({str(ROOT / "tests/golden/agent-flat.pickle")!r}, "rb"))
import brick_agent
public = [getattr(brick_agent, name) for name in brick_agent.__all__]
assert old["public"] and all(each in public for each in old["public"])
print(*old["enums"], *old["nodes"], *old["totals"], old["report"].diagnosis, sep="\\n")
"""
    result = subprocess.run([sys.executable, "-P", "-c", load], capture_output=True, text=True, check=True)
    names = [line.split("(")[0] for line in result.stdout.splitlines()]
    assert names[:12] == [
        *("5", "2", "2", "1", "1", "0"),  # the members of an IntEnum are printed as numbers
        *(f"ExecutionNode.{kind}" for kind in ("Layer", "Brick", "Kernel", "Transfer", "Function", "AsyncTask")),
    ]
    assert names[12:15] == ["BrickStats", "TileStats", "CategoryStats"]
    assert names[15].startswith("diverged: new differs from base in 1 of 1 kernel, first at scale, layer 0")


# Prints a status, and the loaded modules of brickd and of others.
STATUS = """
import sys
from brickd.cli import main
sys.argv = ["brickd", "status", "--json"]
main()
print(*sorted(sys.modules))
"""


def loaded_by_status() -> set[str]:
    result = subprocess.run([sys.executable, "-P", "-c", STATUS], capture_output=True, text=True, check=True)
    return set(result.stdout.splitlines()[-1].split())


# Prints a status. Then prints how many garbage collections this took, and whether a daemon in this process has the
# usual thresholds.
SEARCHES = """
import gc, sys
usual = gc.get_threshold()
from brickd.__main__ import main
searches = lambda: sum(each["collections"] for each in gc.get_stats())
sys.argv, before = ["brickd", "status"], searches()
main()
print(searches() - before)
from brickd.base.paths import runtime
from brickd.cli import inprocess_daemon
with inprocess_daemon.draining(runtime(), None):
    print(gc.get_threshold() == usual)
"""


@pytest.mark.ci
def test_a_command_disables_garbage_collection_and_a_daemon_keeps_it(prefix: str) -> None:
    result = subprocess.run([sys.executable, "-P", "-c", SEARCHES], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[1:] == ["0", "True"]


@pytest.mark.ci
def test_status_loads_neither_numpy_nor_psutil(prefix: str) -> None:
    assert not loaded_by_status() & {"numpy", "psutil", "asyncio", "starlette", "uvicorn", "socket"}


@pytest.mark.ci
def test_status_without_comparable_data_loads_no_comparison_code(worker: Start) -> None:
    started(worker)
    loaded = loaded_by_status()
    assert "brickd.model.workers" in loaded
    light = {"analysis.evidence_verdicts", "analysis.problem", "analysis.problem_book"}
    light |= {"analysis.numerics", "analysis.numerics.recent_counts"}
    assert {each for each in loaded if each.startswith("brickd.analysis.")} == {f"brickd.{each}" for each in light}
    decoders = ("state.daemon_state", "datasources.ring_records", "base.thresholds", "model.deferred")
    assert not loaded & ({f"brickd.{each}" for each in decoders} | {"hashlib", "tempfile", "tomllib"})


@pytest.mark.ci
@pytest.mark.usefixtures("daemon")
def test_a_status_from_a_daemon_loads_no_code_for_segments_or_views() -> None:
    loaded = loaded_by_status()
    assert "socket" in loaded
    assert not loaded & {
        "brickd.state.daemon_state",
        "brickd.shm.segment_copy",
        "brickd.shm.segment",
        "brickd.model.workers",
        "brickd.datasources.world",
    }
    fetching = {"brickd.views", "brickd.views.fetch_answer", "brickd.views.next_command"}
    assert {module for module in loaded if module.startswith("brickd.views")} == fetching
