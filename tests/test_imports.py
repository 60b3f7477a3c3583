"""The architecture, held by tests: imports run one way, and what may be loaded is loaded late."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import brick_agent
import pytest
from conftest import ROOT

# From the bottom up: a module imports only from lines above its own.
LAYERS = (
    {"brickd.locks"},
    {
        "brickd._peaks",
        "brickd._reader",
        "brickd.called",
        "brickd.composed",
        "brickd.errors",
        "brickd.escape",
        "brickd.launch",
        "brickd.notify",
        "brickd.numerics.reasons",
        "brickd.questions.parameter",
        "brickd.machine",
        "brickd.ranks",
        "brickd.replacing",
        "brickd.runtime",
        "brickd.standing",
        "brickd.switches",
        "brickd.valid",
        "brickd.words",
    },
    {"brickd.descriptors", "brickd.framed", "brickd.questions.question", "brickd.thinning", "brickd.users"},
    {"brickd.peaks"},
    {
        "brickd.orders",
        "brickd.questions.bricks",
        "brickd.questions.coverage",
        "brickd.questions.diff",
        "brickd.questions.events",
        "brickd.questions.fingerprints",
        "brickd.questions.hang",
        "brickd.questions.inspect",
        "brickd.questions.source",
        "brickd.questions.status",
        "brickd.questions.stragglers",
        "brickd.questions.tree",
        "brickd.questions.weights",
        "brickd.questions.workers",
    },
    {"brickd.questions.roofline"},
    {
        "brickd.clock",
        "brickd.critical",
        "brickd.drawing",
        "brickd.instant",
        "brickd.packed",
        "brickd.starts",
        "brickd.units",
    },
    {"brickd.deferred", "brickd.files", "brickd.manifest", "brickd.recording.ending", "brickd.recording.volumes"},
    {
        "brickd.against",
        "brickd.events",
        "brickd.findings",
        "brickd.reading",
        "brickd.recording.file",
        "brickd.records",
    },
    {"brickd.removed"},
    {"brickd.removed_file"},
    {"brickd.recording.events", "brickd.recording.heads", "brickd.numerics.matched", "brickd.numerics.sites"},
    {"brickd.numerics.contents", "brickd.numerics.holds", "brickd.numerics.tensors"},
    {"brickd.numerics.weights"},
    {"brickd.numerics.form", "brickd.numerics.judged"},
    {"brickd.numerics.stored"},
    {"brickd.numerics.blame", "brickd.numerics.compared", "brickd.numerics.numerics", "brickd.numerics.opinions"},
    {
        "brickd.numerics.carried",
        "brickd.numerics.classes",
        "brickd.numerics.comparison",
        "brickd.numerics.fates",
        "brickd.numerics.recalled",
        "brickd.numerics.room",
        "brickd.numerics.tally",
        "brickd.recording.form",
    },
    {"brickd.numerics.diagnosis", "brickd.numerics.learning"},
    {"brickd.recording.tails", "brickd.sources_told"},
    {"brickd.sources_filed"},
    {"brickd.sources"},
    {"brickd.recording.shelf", "brickd.valid_reading"},
    {"brickd.recording.rings"},
    {"brickd.directory", "brickd.segment", "brickd.twins"},
    {"brickd.budget", "brickd.dtypes", "brickd.kept", "brickd.lately", "brickd.overlay"},
    {"brickd.ledger"},
    {"brickd.memory"},
    {"brickd.checkpoint"},
    {"brickd.fold", "brickd.naming", "brickd.opened", "brickd.prune"},
    {"brickd.attached", "brickd.losses", "brickd.marks", "brickd.numerics.told", "brickd.workers"},
    {"brickd.numerics.news", "brickd.numerics.seen", "brickd.numerics.shards", "brickd.snapshot", "brickd.usage"},
    {"brickd.numerics.replicas", "brickd.sampler", "brickd.windows"},
    {"brickd.numerics.weighing"},
    {
        "brickd.hang",
        "brickd.place",
        "brickd.roster",
        "brickd.turns",
        "brickd.numerics.watch",
        "brickd.totals",
        "brickd.world",
        "brickd.doctor.finding",
        "brickd.doctor.kernel",
    },
    {"brickd.doctor.container", "brickd.places"},
    {
        "brickd.numerics.scales",
        "brickd.recording.redacted",
        "brickd.recording.source",
        "brickd.recording.written",
        "brickd.sources_referred",
    },
    {"brickd.recording.tables", "brickd.recording.writer"},
    {"brickd.recording.contents", "brickd.recording.recorder"},
    {"brickd.recording.checked", "brickd.recording.recordings"},
    {
        "brickd.collector",
        "brickd.paces",
        "brickd.shares",
        "brickd.graph",
        "brickd.verdicts",
        "brickd.doctor.clock",
        "brickd.doctor.installed",
        "brickd.doctor.logind",
        "brickd.doctor.processes",
        "brickd.doctor.removed",
        "brickd.doctor.segments",
    },
    {"brickd.beside", "brickd.doctor.shared_memory", "brickd.tree"},
    {"brickd.abreast"},
    {"brickd.stragglers"},
    {"brickd.lookout"},
    {"brickd.recording.world"},
    {"brickd.doctor.keys", "brickd.doctor.losses", "brickd.doctor.memory_group", "brickd.doctor.namespaces"},
    {"brickd.wire"},
    {"brickd.client"},
    {"brickd.doctor.daemon", "brickd.doctor.numerics", "brickd.gathered", "brickd.unfetched"},
    {"brickd.doctor.recordings"},
    {"brickd.doctor.examination"},
    {"brickd.working_sets"},
    {"brickd.peaks_measured"},
    {"brickd.calibration", "brickd.dot", "brickd.picture", "brickd.roofline"},
    {"brickd.views.answer"},
    {"brickd.health", "brickd.views.removed", "brickd.views.weighed"},
    {"brickd.views.numerics"},
    {
        "brickd.views.bricks",
        "brickd.views.coverage",
        "brickd.views.differing_weights",
        "brickd.views.events",
        "brickd.views.fingerprints",
        "brickd.views.hang",
        "brickd.views.inspect",
        "brickd.views.source",
        "brickd.views.stragglers",
        "brickd.views.tree",
        "brickd.views.weights",
        "brickd.views.workers",
    },
    {"brickd.recording.looks", "brickd.views.differences", "brickd.views.status"},
    {"brickd.views.diff"},
    {"brickd.api.limits", "brickd.api.listener", "brickd.api.peer", "brickd.api.replies", "brickd.api.served"},
    {"brickd.api.connection", "brickd.api.streams", "brickd.api.whole"},
    {"brickd.api.application"},
    {"brickd.api.server"},
    {"brickd.home", "brickd.loop"},
    {"brickd.daemon"},
    {
        "brickd.cli.commands",
        "brickd.cli.draining",
        "brickd.cli.logfile",
        "brickd.cli.output",
        "brickd.cli.recordings",
        "brickd.cli.tab",
        "brickd.cli.waiting",
    },
    {"brickd.cli.answers", "brickd.cli.asking", "brickd.cli.phrases", "brickd.cli.table"},
    {"brickd.cli.graph"},
    {
        "brickd.cli.checking",
        "brickd.cli.fetching",
        "brickd.cli.guarding",
        "brickd.cli.sides",
        "brickd.cli.rescanning",
        "brickd.cli.watched",
        "brickd.cli.watching",
    },
    {
        "brickd.cli.bricks",
        "brickd.cli.calibrate",
        "brickd.cli.completion",
        "brickd.cli.coverage",
        "brickd.cli.diff",
        "brickd.cli.doctor",
        "brickd.cli.down",
        "brickd.cli.events",
        "brickd.cli.hang",
        "brickd.cli.inspect",
        "brickd.cli.prune",
        "brickd.cli.record",
        "brickd.cli.roofline",
        "brickd.cli.run",
        "brickd.cli.set",
        "brickd.cli.source",
        "brickd.cli.status",
        "brickd.cli.stragglers",
        "brickd.cli.tree",
        "brickd.cli.up",
        "brickd.cli.version",
        "brickd.cli.weights",
        "brickd.cli.workers",
    },
    {"brickd.cli.demo"},
    {"brickd.cli"},
    {"brickd.divergence"},
    {"brickd.__main__"},
)
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}
# Programs that run in processes of their own, and what they are made of.
PROGRAMS = {"brickd.demo.damage", "brickd.demo.transformer", "brickd.demo.worker"}
# They hold their modules together, and nothing else.
PACKAGES = {
    "brickd",
    "brickd.api",
    "brickd.demo",
    "brickd.doctor",
    "brickd.numerics",
    "brickd.questions",
    "brickd.recording",
    "brickd.views",
}


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for path in (ROOT / "brickd").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in names if name in LEVEL or name.split(".")[0] == "brick_agent"}


@pytest.mark.parametrize(
    "module",
    sorted(set(modules()) - PROGRAMS - PACKAGES),
)
def test_imports_run_one_way(module: str) -> None:
    assert module in LEVEL, f"{module} has no place in the architecture: give it one above"
    for name in imported(modules()[module]):
        assert name in LEVEL, f"{module} imports {name}: brickd and brick_agent never import each other"
        same_package = module.startswith(name + ".")
        assert same_package or LEVEL[name] < LEVEL[module], f"{module} imports {name}, which stands above it"


def test_a_program_of_the_demo_knows_nothing_of_brickd() -> None:
    for program in PROGRAMS:
        assert "brickd" not in {name.split(".")[0] for name in imported(modules()[program])}


def test_every_public_name_of_the_agent_has_one_home() -> None:
    assert sorted(brick_agent.__all__) == brick_agent.__all__
    for name in brick_agent.__all__:
        assert getattr(brick_agent, name).__doc__, f"brick_agent.{name} is not documented"


# A status, and what of brickd and of others it has loaded.
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


def test_status_loads_neither_numpy_nor_psutil(prefix: str) -> None:
    assert not loaded_by_status() & {"numpy", "psutil", "asyncio", "starlette", "uvicorn", "socket"}


@pytest.mark.usefixtures("daemon")
def test_a_status_that_a_daemon_answers_loads_nothing_that_reads_segments_or_builds_views() -> None:
    loaded = loaded_by_status()
    assert "socket" in loaded
    assert not loaded & {"brickd.memory", "brickd.reading", "brickd.segment", "brickd.workers", "brickd.world"}
    assert not {module for module in loaded if module.startswith("brickd.views")}
