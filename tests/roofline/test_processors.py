"""Which processors share a core, and which processors this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from brickd.base.processors import CPUS, Machine, chosen, cores, here, neighbours, online, virtual

ALLOWED = sorted(os.sched_getaffinity(0))


def test_processors_of_the_same_core_are_neighbours(tmp_path: Path) -> None:
    for cpu, siblings in ((0, "0,4\n"), (4, "0,4\n"), (1, "1\n")):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(siblings)
    assert neighbours([0], tmp_path) == {0, 4}
    assert neighbours([1, 4], tmp_path) == {0, 1, 4}
    assert neighbours([7], tmp_path) == {7}
    assert online(tmp_path) == frozenset()
    (tmp_path / "online").write_text("0-1,4\n")
    assert online(tmp_path) == {0, 1, 4}


@pytest.mark.parametrize(
    ("limit", "cpus"), [(None, [0, 1, 3]), (3.0, [0, 1, 3]), (2.0, [0, 1]), (1.1, [0, 1]), (1.0, [0]), (0.2, [0])]
)
def test_one_processor_of_each_core_is_measured_up_to_the_limit(limit: float | None, cpus: list[int]) -> None:
    pairs = {0: {0, 4}, 4: {0, 4}, 1: {1, 5}, 5: {1, 5}, 3: {3}}
    assert chosen([5, 4, 3, 1, 0], limit, pairs.__getitem__) == cpus


def test_cores_are_processors_that_this_process_may_use() -> None:
    assert set(cores()) <= set(ALLOWED)
    assert cores()


def machine(root: Path, cpu_max: str = "max 100000", siblings: str = "", flags: str = "fpu avx2") -> Path:
    """Imitate a machine. Each of its processors shares a core with these siblings, and this process is in a control
    group.
    """
    files = {"proc/cpuinfo": f"model name\t: a processor\nflags\t\t: {flags}\n", "sys/fs/cgroup/cpu.max": cpu_max}
    files |= {f"proc/{os.getpid()}/cgroup": "0::/\n"}
    files |= {f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": siblings for cpu in ALLOWED}
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_a_virtual_machine_is_recognised_by_its_processor_flag(tmp_path: Path) -> None:
    assert not virtual(tmp_path)
    assert not virtual(machine(tmp_path))
    assert virtual(machine(tmp_path, flags="fpu hypervisor avx2"))
    assert not virtual(machine(tmp_path, flags="nohypervisor"))


def test_a_machine_has_the_cores_that_affinity_and_cpu_limit_leave(tmp_path: Path) -> None:
    one = Machine("a processor", 1)
    assert here(machine(tmp_path)) == Machine("a processor", len(ALLOWED))
    assert here(machine(tmp_path, cpu_max="100000 100000")) == one
    assert here(machine(tmp_path, cpu_max="1000 100000")) == one
    assert here(machine(tmp_path, siblings=f"0-{ALLOWED[-1]}\n")) == one
    try:
        os.sched_setaffinity(0, ALLOWED[:1])
        assert here(machine(tmp_path)) == one
    finally:
        os.sched_setaffinity(0, ALLOWED)
