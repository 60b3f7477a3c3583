"""The findings of `brickd doctor` for made-up facts, and for folders that imitate those of a machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from brickd.base import cgroups
from brickd.base.cgroups import Limit
from brickd.client.other_version import Build
from brickd.doctor import (
    checksum_keys,
    clock,
    container,
    daemon,
    logind,
    lost_records,
    namespaces,
    numerics,
    segments,
    shared_memory,
    unfetched_recordings,
    versions,
)
from brickd.doctor.check import STATES, CheckResult
from brickd.doctor.clock import KernelClock
from brickd.doctor.container import Container
from brickd.doctor.daemon import DaemonFacts
from brickd.doctor.flight_recorder import FlightFacts
from brickd.doctor.logind import Logind, User
from brickd.doctor.processes import Mapped, Process, Processes
from brickd.doctor.run_checks import MachineFacts, judge
from brickd.doctor.segments import ReadSegment, RefusedSegment, Segments
from brickd.doctor.shared_memory import Demand, ShmFacts
from brickd.doctor.unfetched_recordings import UnfetchedRecording
from brickd.shm.losses import Loss

MIB, SECOND = 1 << 20, 1_000_000_000
SHM = ShmFacts("/dev/shm", "tmpfs", size_bytes=64 * MIB, free_bytes=64 * MIB)
HOST = Container(None, "no trace of one")
DOCKER = Container("docker", "/.dockerenv is there")
POD = Container("kubernetes", "KUBERNETES_SERVICE_HOST is set")
TSC = KernelClock("x86_64", "tsc", ("tsc", "hpet"))
API = ReadSegment("api/0", "brickd-0", pid=7, own_pid=7)
ALIVE = Segments(workers=(API,))
OWN = Mapped("brickd-" + 32 * "0", "here", True)
FILE = "0123456789abcdef" * 2


def processes(*found: Process, closed: int = 0, left: int = 0) -> Processes:
    return Processes(found, 80, closed, left)


def test_a_check_result_has_a_fix_unless_it_is_ok() -> None:
    with pytest.raises(ValueError, match="a fine finding has none"):
        CheckResult("x", "ok", "seen", "wanted", "fix")
    with pytest.raises(ValueError, match="that is not fine needs a fix"):
        CheckResult("x", "broken", "seen", "wanted")


def facts() -> MachineFacts:
    return MachineFacts(
        prefix="brickd-",
        versions=versions.Versions(Build("1.0"), None, "1.0"),
        container=HOST,
        shm=SHM,
        logind=Logind(running=False),
        clock=TSC,
        memory=None,
        segments=ALIVE,
        processes=processes(Process(7, "python", (OWN,))),
        daemon=DaemonFacts("/run/brickd-ops"),
        flight=FlightFacts("off"),
    )


def test_a_healthy_machine_needs_no_fix() -> None:
    found = judge(facts())
    assert {one.state for one in found} == {"ok"}
    assert len({one.name for one in found}) == len(found)


def test_the_worst_finding_comes_first_and_a_fault_affects_no_other_finding() -> None:
    sick = replace(facts(), shm=replace(SHM, read_only=True), clock=replace(TSC, current="hpet"))
    found = judge(sick)
    assert [STATES.index(one.state) for one in found] == sorted(STATES.index(one.state) for one in found)
    assert {one.name for one in found if one.state != "ok"} == {"shm", "clock", "clock-choice"}


# ---- /dev/shm


@pytest.mark.parametrize(
    ("shm", "state", "fix"),
    [
        (SHM, "ok", None),
        (replace(SHM, filesystem=None), "broken", "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm"),
        (replace(SHM, read_only=True), "broken", "mount -o remount,rw /dev/shm"),
        (replace(SHM, filesystem="ext4"), "advice", "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm"),
        (replace(SHM, filesystem="unknown"), "ok", None),
    ],
)
def test_dev_shm_must_be_a_writable_tmpfs(shm: ShmFacts, state: str, fix: str | None) -> None:
    found = shared_memory.judge_place(shm)
    assert (found.state, found.fix) == (state, fix)


@pytest.mark.parametrize(
    ("shm", "states"),
    [
        (SHM, ["ok"]),
        (replace(SHM, usable=False, mode=0o755), ["broken"]),
        (replace(SHM, mode=0o777), ["advice"]),
        (replace(SHM, filesystem=None, usable=False), []),
        (replace(SHM, read_only=True, usable=False), []),
    ],
)
def test_every_user_must_be_able_to_create_files_in_dev_shm(shm: ShmFacts, states: list[str]) -> None:
    found = shared_memory.judge_access(shm, HOST)
    assert [one.state for one in found] == states
    assert {one.fix for one in found} <= {None, "chmod 1777 /dev/shm"}


@pytest.mark.parametrize(("mode", "state"), [(0o2777, "ok"), (0o777, "ok"), (0o1777, "ok"), (0o755, "advice")])
def test_a_volume_of_a_pod_needs_no_sticky_bit(mode: int, state: str) -> None:
    assert [one.state for one in shared_memory.judge_access(replace(SHM, mode=mode), POD)] == [state]


@pytest.mark.parametrize(
    ("free", "workers", "state"),
    [
        (64 * MIB, [], "ok"),
        (19 * MIB, [], "ok"),
        (19 * MIB - 1, [], "advice"),  # one new worker may need more than this
        (53 * MIB, [Demand(10 * MIB, 44 * MIB)], "ok"),  # the worker may grow by 34 MiB while a new one starts
        (53 * MIB - 1, [Demand(10 * MIB, 44 * MIB)], "advice"),
        (87 * MIB, 2 * [Demand(10 * MIB, 44 * MIB)], "ok"),
        (87 * MIB - 1, 2 * [Demand(10 * MIB, 44 * MIB)], "advice"),
        (19 * MIB, [Demand(44 * MIB, 43 * MIB)], "ok"),
        (100 << 10, [Demand(44 * MIB, 44 * MIB)], "broken"),
        (0, [], "broken"),
    ],
)
def test_free_space_must_suffice_for_the_memory_that_workers_may_still_use(
    free: int, workers: list[Demand], state: str
) -> None:
    (found,) = shared_memory.judge_room(replace(SHM, free_bytes=free), workers, HOST)
    assert found.state == state


def test_without_a_size_limit_space_suffices_but_inodes_may_not() -> None:
    (found,) = shared_memory.judge_room(replace(SHM, size_bytes=0, free_bytes=0), [], HOST)
    assert found.state == "ok"
    (found,) = shared_memory.judge_room(replace(SHM, more_files=False), [], HOST)
    assert (found.state, found.fix) == ("broken", "mount -o remount,nr_inodes=1M /dev/shm")


@pytest.mark.parametrize(
    ("where", "fix"),
    [
        (HOST, "mount -o remount,size=1G /dev/shm"),
        (DOCKER, "docker run --shm-size=1g IMAGE"),
        (Container("podman", "x"), "podman run --shm-size=1g IMAGE"),
        (POD, "medium: Memory, sizeLimit: 1Gi"),
    ],
)
def test_the_fix_for_missing_space_depends_on_the_container(where: Container, fix: str) -> None:
    (found,) = shared_memory.judge_room(replace(SHM, free_bytes=0), [], where)
    assert fix in (found.fix or "")
    assert where.evidence in found.seen or where.kind is None


def test_the_suggested_size_holds_the_present_content_twice() -> None:
    full = replace(SHM, size_bytes=3 << 30, free_bytes=0)
    (found,) = shared_memory.judge_room(full, [], HOST)
    assert found.fix == "mount -o remount,size=7G /dev/shm"


def test_the_topmost_mount_determines_what_dev_shm_is(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        f"30 27 0:5 / {tmp_path} rw - xfs x rw\n"
        f"31 30 0:6 / {tmp_path}/s rw shared:1 - tmpfs - rw\n"
        f"32 30 0:7 / {tmp_path}/sh rw - nfs x rw\n"
        f"33 31 0:8 / {tmp_path}/s rw - overlay x rw\n"
        "junk\n"
    )
    (tmp_path / "s").mkdir()
    assert shared_memory.observe(str(tmp_path / "s"), mounts).filesystem == "overlay"
    assert shared_memory.observe(str(tmp_path), mounts).filesystem == "xfs"
    assert shared_memory.observe(str(mounts), mounts).filesystem is None
    assert shared_memory.observe(str(tmp_path / "nothing"), mounts).filesystem is None
    assert shared_memory.observe("/", tmp_path / "nothing").filesystem == "unknown"


@pytest.mark.parametrize(
    ("file", "kind"), [(".dockerenv", "docker"), ("run/.containerenv", "podman"), ("run/systemd/container", "other")]
)
def test_a_container_is_recognized_by_files_of_its_runtime(tmp_path: Path, file: str, kind: str) -> None:
    assert container.observe({}, tmp_path).kind is None
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("lxc\n")
    seen = container.observe({}, tmp_path)
    assert (seen.kind, f"/{file}" in seen.evidence) == (kind, True)
    assert container.observe({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path).kind == "kubernetes"
    assert container.observe({"container": "oci"}, tmp_path / "else").kind == "other"


# ---- logind

ALICE, ROOT, LINGERING = User("alice", False, False), User("root", True, False), User("bob", False, True)


@pytest.mark.parametrize(
    ("seen", "fix"),
    [
        (Logind(running=False, users=(ALICE,)), None),
        (Logind(running=True, users=(ROOT, LINGERING)), None),
        (Logind(running=True, remove_ipc=False, users=(ALICE,)), None),
        (Logind(running=True, users=(ALICE, ROOT, User("x y", False, False))), "loginctl enable-linger alice 'x y'"),
    ],
)
def test_logging_out_removes_the_segments_of_users_who_do_not_linger(seen: Logind, fix: str | None) -> None:
    found = logind.judge(seen)
    assert (found.state, found.fix) == ("advice" if fix else "ok", fix)
    assert found.about == (("alice", "x y") if fix else ())


NO, YES = "[Login]\nRemoveIPC=no\n", "[Login]\nRemoveIPC=yes\n"


@pytest.mark.parametrize(
    ("files", "removes", "source"),
    [
        ({}, True, ""),
        ({"etc/systemd/logind.conf": NO}, False, "/etc/systemd/logind.conf"),
        ({"etc/systemd/logind.conf": "#RemoveIPC=no\n[Other]\nRemoveIPC=no\n"}, True, ""),
        ({"etc/systemd/logind.conf": "[Login]\n RemoveIPC = Off \nRemoveIPC=perhaps\n"}, False,
         "/etc/systemd/logind.conf"),
        # Only the first main file counts, because systemd does not read further main files.
        ({"etc/systemd/logind.conf": "", "usr/lib/systemd/logind.conf": NO}, True, ""),
        ({"usr/lib/systemd/logind.conf": NO}, False, "/usr/lib/systemd/logind.conf"),
        # Drop-ins come after the main file, ordered by name, in any folder.
        ({"etc/systemd/logind.conf": YES, "usr/lib/systemd/logind.conf.d/x.conf": NO}, False,
         "/usr/lib/systemd/logind.conf.d/x.conf"),
        ({"etc/systemd/logind.conf.d/10.conf": NO, "usr/lib/systemd/logind.conf.d/20.conf": YES}, True,
         "/usr/lib/systemd/logind.conf.d/20.conf"),
        # A file in /etc hides files of the same name in /run and /usr/lib.
        ({"etc/systemd/logind.conf.d/a.conf": "", "run/systemd/logind.conf.d/a.conf": NO}, True, ""),
        ({"etc/systemd/logind.conf.d/a.txt": NO}, True, ""),
    ],
)  # fmt: skip
def test_settings_are_read_in_systemds_order(tmp_path: Path, files: dict[str, str], removes: bool, source: str) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen = logind.observe([], tmp_path)
    assert (seen.running, seen.remove_ipc, seen.source) == (True, removes, source)


def test_system_and_lingering_users_are_recognized(tmp_path: Path) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/login.defs").write_text("#SYS_UID_MAX 5\nSYS_UID_MAX\t 499\n")
    (tmp_path / "var/lib/systemd/linger").mkdir(parents=True)
    (tmp_path / "var/lib/systemd/linger/4000001").write_text("")
    seen = logind.observe([0, 499, 4000000, 4000001, 4000000], tmp_path).users
    assert [(user.system, user.lingering) for user in seen] == [
        (True, False), (True, False), (False, False), (False, True),
    ]  # fmt: skip
    assert seen[2].name == "4000000"


def test_a_machine_without_systemd_has_no_logind(tmp_path: Path) -> None:
    assert not logind.observe([0], tmp_path).running


# ---- the clock


@pytest.mark.parametrize(
    ("seen", "state", "fix"),
    [
        (TSC, "ok", None),
        (KernelClock("aarch64", "arch_sys_counter", flags=frozenset()), "ok", None),
        (KernelClock("riscv64", "riscv_clocksource", flags=frozenset()), "ok", None),
        (replace(TSC, current="hpet"), "advice", "echo tsc > /sys/devices/system/clocksource/clocksource0/current"),
        (replace(TSC, current="hpet", available=("hpet",)), "advice", "tsc=reliable on the kernel's command line"),
        (replace(TSC, flags=frozenset({"constant_tsc"})), "advice", "+invtsc"),
        (replace(TSC, current=None), "advice", "mount -t sysfs"),
    ],
)  # fmt: skip
def test_the_kernel_must_trust_the_tsc(seen: KernelClock, state: str, fix: str | None) -> None:
    found = clock.judge_source(seen)
    assert found.state == state
    assert (fix or "") in (found.fix or "")


@pytest.mark.parametrize(
    ("seen", "counters", "state", "about"),
    [
        (TSC, {"a": True, "b": True}, "ok", ("a", "b")),
        (TSC, {"a": True, "b": False}, "advice", ("b",)),
        (replace(TSC, current="hpet"), {"a": False}, "ok", ("a",)),
        (replace(TSC, current="hpet"), {"a": False, "b": True}, "broken", ("b",)),
        (TSC, {}, "ok", ()),
    ],
)
def test_workers_must_use_the_expected_clock(
    seen: KernelClock, counters: dict[str, bool], state: str, about: tuple[str, ...]
) -> None:
    found = clock.judge_choice(seen, counters)
    assert (found.state, found.about) == (state, about)


def test_the_clock_is_parsed_as_the_kernel_prints_it(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/clocksource/clocksource0"
    folder.mkdir(parents=True)
    (folder / "current_clocksource").write_text("kvm-clock\n")
    (folder / "available_clocksource").write_text("kvm-clock tsc acpi_pm \n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc\n" * 2)
    assert clock.observe("x86_64", tmp_path) == KernelClock(
        "x86_64", "kvm-clock", ("kvm-clock", "tsc", "acpi_pm"), frozenset({"fpu", "constant_tsc", "nonstop_tsc"})
    )
    assert clock.observe("x86_64", tmp_path / "nothing").current is None


# ---- the memory control group

GROUP = "/sys/fs/cgroup/a/memory.max"


@pytest.mark.parametrize(
    ("limit", "where", "fix"),
    [
        (None, HOST, None),
        (Limit(GROUP, 1000 * MIB, 900 * MIB), HOST, None),
        (Limit(GROUP, 1024 * MIB, 1023 * MIB), HOST, f"echo 2147483648 > {GROUP}"),
        (Limit(GROUP, 1024 * MIB, 1024 * MIB), DOCKER, "docker update --memory=2147483648 CONTAINER"),
        (Limit(GROUP, 1024 * MIB, 2048 * MIB), POD, "resources: {limits: {memory: 2048Mi}}"),
    ],
)  # fmt: skip
def test_a_cgroup_must_have_memory_for_a_worker(limit: Limit | None, where: Container, fix: str | None) -> None:
    found = shared_memory.judge_group(limit, where)
    assert (found.state, found.fix) == ("advice" if fix else "ok", fix)


def group(folder: Path, limit: object, used: int, inactive: int, names: tuple[str, str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {inactive}\nfile 1\n")


V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def test_the_tightest_limit_of_all_parent_cgroups_counts(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    group(tmp_path / "sys/fs/cgroup/a/b", "max", 10, 0, V2)
    group(tmp_path / "sys/fs/cgroup/a", 100, 90, 40, V2)
    group(tmp_path / "sys/fs/cgroup", 1000, 970, 0, V2)
    assert cgroups.observe(tmp_path) == Limit("/sys/fs/cgroup/memory.max", 1000, 970)
    group(tmp_path / "sys/fs/cgroup/a", 100, 90, 0, V2)
    assert cgroups.observe(tmp_path) == Limit(GROUP, 100, 90)


def test_cgroup_v1_and_paths_outside_of_the_mount_are_understood(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,memory:/docker/0123\n0::/\n1:name=systemd:/x\njunk\n")
    assert cgroups.observe(tmp_path) is None
    group(tmp_path / "sys/fs/cgroup/memory", 500, 200, 50, V1)
    assert cgroups.observe(tmp_path) == Limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", 500, 150)
    group(tmp_path / "sys/fs/cgroup/memory", 9223372036854771712, 200, 50, V1)
    assert cgroups.observe(tmp_path) is None


# ---- segments


def test_dead_segments_are_counted_with_their_memory() -> None:
    dead = tuple(ReadSegment(f"api/{n}", f"brickd-{n}", taken_bytes=MIB) for n in range(5))
    found = segments.judge_dead(Segments(workers=(API, *dead)))
    assert (found.state, found.fix, len(found.about)) == ("advice", "brickd prune", 5)
    assert found.seen == "5 segments of workers that ended or died (api/0, api/1, api/2 and 2 more), 5.0 MiB"
    assert segments.judge_dead(ALIVE).state == "ok"


def test_refused_files_with_the_same_fix_are_reported_together() -> None:
    refused = (
        RefusedSegment("brickd-a", "magic"),
        RefusedSegment("brickd-b", "magic"),
        RefusedSegment("brickd-c", "format 2.0", alive=True),
        RefusedSegment("brickd-x y", "a FIFO", regular=False),
        RefusedSegment("brickd-d", "takes 2 GiB", alive=True, costly=True),
        RefusedSegment("brickd-e", "takes 2 GiB", costly=True),
    )
    found = segments.judge_refused(Segments(refused=refused))
    assert [(one.state, one.fix, one.about) for one in found] == [
        ("advice", "brickd prune --refused", ("brickd-a", "brickd-b")),
        ("broken", "pip install ./agent .", ("brickd-c",)),
        ("advice", "rm -r -- '/dev/shm/brickd-x y'", ("brickd-x y",)),
        ("broken", "export BRICKD_LANES=32 BRICKD_PATHS=8192", ("brickd-d",)),
        ("advice", "brickd prune", ("brickd-e",)),
    ]
    assert found[0].seen == "brickd-a: magic; and 1 more"
    assert [one.state for one in segments.judge_refused(ALIVE)] == ["ok"]


def test_segments_of_other_users_are_counted_per_owner_and_change_no_state() -> None:
    others = Segments(foreign={1001: 1, 1002: 4})
    found = segments.judge_foreign(others, HOST)
    assert (found.state, found.about) == ("ok", ("#1002", "#1001"))
    assert found.seen == (
        "not read: #1002 has 4, #1001 has 1; this user has none (to look as #1002: sudo -u '#1002' brickd status)"
    )
    assert segments.judge_foreign(replace(others, workers=(API,)), HOST).seen == "not read: #1002 has 4, #1001 has 1"
    assert segments.judge_foreign(ALIVE, HOST).seen == "no other user has segments"


def test_segments_that_others_may_open_are_named_with_a_fix() -> None:
    found = segments.judge_shared(Segments(workers=(API,), shared=("brickd-a", "brickd-b c")))
    assert (found.state, found.fix) == ("advice", "chmod 600 /dev/shm/brickd-a '/dev/shm/brickd-b c'")
    assert segments.judge_shared(ALIVE).state == "ok"


@pytest.mark.parametrize(
    ("where", "fix"),
    [
        (DOCKER, "docker run --user 1234 IMAGE"),
        (POD, "securityContext: {runAsUser: 1234}"),
        (Container("podman", "x"), "podman run --user 1234 IMAGE"),
    ],
)
def test_the_command_that_changes_the_user_fits_the_container(where: Container, fix: str) -> None:
    assert fix in segments.judge_foreign(Segments(foreign={1234: 1}), where).seen


def test_each_cause_of_loss_is_reported_once_with_one_setting_for_all() -> None:
    def lost(name: str, *found: Loss) -> ReadSegment:
        return ReadSegment(name, name, losses=found)

    lanes = [Loss("lanes", "9 spans", spans=True, settings=(f"BRICKD_LANES={n}",)) for n in (2, 64, 3)]
    signals = Loss("signals", "3 calls", spans=False)
    memory = Loss("memory", "refused", spans=True)
    workers = (lost("a b", lanes[0], signals), lost("c", lanes[1]), lost("d", memory), lost("e", lanes[2]))
    found = lost_records.judge(Segments(workers=workers), SHM, HOST)
    assert [(one.name, one.state, one.fix, one.about) for one in found] == [
        ("loss-lanes", "broken", "BRICKD_LANES=64", ("a b", "c", "e")),
        ("loss-signals", "advice", "brickd inspect 'a b'", ("a b",)),
        ("loss-memory", "broken", "mount -o remount,size=1G /dev/shm", ("d",)),
    ]
    assert found[0].seen == "a b: 9 spans; and 2 more workers"
    marks = Loss("marks", "wrong direction"), Loss("marks", "no room", settings=("BRICKD_PATHS=2048",))
    (one,) = lost_records.judge(Segments(workers=tuple(map(lost, "ab", marks))), SHM, HOST)
    assert (one.fix, one.seen, one.about) == ("BRICKD_PATHS=2048", "b: no room; and 1 more worker", ("a", "b"))
    assert [one.state for one in lost_records.judge(ALIVE, SHM, HOST)] == ["ok"]


def test_a_setting_has_one_value_in_all_findings_and_an_estimate_is_called_one() -> None:
    tables = Loss("tables", "more than its 64 names", settings=("BRICKD_NAMES=128",), again="it is an estimate")
    marks = Loss("marks", "half of its 64 paths", settings=("BRICKD_PATHS=300", "BRICKD_NAMES=200"))
    workers = (ReadSegment("a", "a", losses=(tables,)), ReadSegment("b", "b", losses=(marks,)))
    one, two = lost_records.judge(Segments(workers=workers), SHM, HOST)
    assert (one.fix, two.fix) == ("BRICKD_NAMES=200", "BRICKD_PATHS=300 BRICKD_NAMES=200")
    assert one.why == "set this in the server's environment; then run brickd doctor again: it is an estimate"
    assert two.why == "set this in the server's environment"


# ---- processes


def test_processes_that_could_not_be_inspected_are_counted() -> None:
    found = namespaces.judge_search(processes(closed=3, left=1000))
    assert (found.state, found.seen) == (
        "ok",
        "0 of this user's 80 processes use brickd; 1,000 more were skipped, because there are too many; 3 could not be"
        " inspected",
    )


@pytest.mark.parametrize("where", [HOST, DOCKER, POD, Container("podman", "x")])
def test_a_worker_with_another_dev_shm_is_reported_with_the_fix(where: Container) -> None:
    away = Process(9, "python", (OWN._replace(place="elsewhere"),))
    found = namespaces.judge_mounts(processes(away, Process(7, "p", (OWN,))), Segments(), where)
    assert (found.state, found.about, found.fix) == ("broken", ("9",), container.shared(where))
    assert "pid 9 (python)" in found.seen
    assert namespaces.judge_mounts(processes(away), ALIVE, where).state == "advice"


@pytest.mark.parametrize("where", [DOCKER, POD, Container("podman", "x")])
def test_a_container_without_any_segment_has_its_own_dev_shm(where: Container) -> None:
    found = namespaces.judge_mounts(processes(), Segments(), where)
    assert (found.state, found.fix) == ("advice", container.shared(where))
    assert namespaces.judge_mounts(processes(), Segments(), HOST).state == "ok"
    assert namespaces.judge_mounts(processes(), Segments(foreign={4321: 9}), where).state == "advice"
    assert namespaces.judge_mounts(processes(Process(9, "python")), Segments(), where).state == "ok"


def test_a_child_that_only_maps_its_parents_segment_is_ok() -> None:
    for place in ("here", "elsewhere", "removed"):
        child = processes(Process(9, "python", (Mapped("x-" + FILE, place, False),)))
        found = [
            namespaces.judge_mounts(child, ALIVE, HOST),
            *namespaces.judge_prefix(child, ALIVE, "brickd-"),
            namespaces.judge_removed(child),
            namespaces.judge_locks(child, ALIVE),
            *namespaces.judge_silence(child, HOST),
        ]
        assert {one.state for one in found} == {"ok"}


def test_each_foreign_prefix_is_reported_with_the_variable_to_set() -> None:
    around = processes(
        Process(1, "a", (OWN,)),
        Process(2, "b", (OWN._replace(file="x y" + FILE),)),
        Process(3, "c", (OWN._replace(file="x y" + FILE),)),
        Process(4, "d", (OWN._replace(file="brickd" + FILE),)),
    )
    found = namespaces.judge_prefix(around, Segments(), "brickd-")
    assert [(one.state, one.fix, one.about) for one in found] == [
        ("broken", "BRICKD_SHM_PREFIX=brickd brickd status", ("4",)),
        ("broken", "BRICKD_SHM_PREFIX='x y' brickd status", ("2", "3")),
    ]


def test_a_removed_segment_is_reported_until_its_worker_has_another() -> None:
    gone = OWN._replace(place="removed")
    lost, found_again, ended = Process(1, "a", (gone,)), Process(2, "b", (gone, OWN)), gone._replace(owned=False)
    found = namespaces.judge_removed(processes(lost, found_again, Process(3, "c", (ended,))))
    assert (found.state, found.about) == ("advice", ("1",))


def test_a_lost_lock_is_reported_for_the_worker_of_the_segment() -> None:
    mapped = OWN._replace(file="brickd-0", owned=False)
    around = processes(Process(7, "python", (mapped,)), Process(8, "child", (mapped,)))
    for pid in (0, None):
        found = namespaces.judge_locks(around, Segments(workers=(API._replace(pid=pid),)))
        assert (found.state, found.about) == ("advice", ("7",))
    assert namespaces.judge_locks(around, ALIVE).state == "ok"


def test_processes_without_a_segment_are_reported_by_their_reason() -> None:
    around = processes(
        Process(1, "a", settings={"BRICKD": "0"}),
        Process(2, "b", settings={"BRICKD": "0"}),
        Process(3, "c", settings={}, free_bytes=0),
        Process(4, "d", settings=None, free_bytes=None),
        Process(5, "e", (OWN,)),
        Process(6, "f", settings={"BRICKD_SHM_PREFIX": 40 * "x"}),
    )
    found = namespaces.judge_silence(around, DOCKER)
    assert [(one.fix, one.about) for one in found] == [
        ("unset BRICKD", ("1", "2")),
        ("docker run --shm-size=1g IMAGE", ("3",)),
        ("brick.init()", ("4",)),
        ("unset BRICKD_SHM_PREFIX", ("6",)),
    ]


@pytest.mark.parametrize(("our_time", "about"), [(True, ()), (None, ()), (False, ("7",))])
def test_another_time_namespace_is_ok_and_mentioned(our_time: bool | None, about: tuple[str, ...]) -> None:
    found = namespaces.judge_time(processes(Process(7, "python", (OWN,), our_time=our_time)))
    assert (found.state, found.about) == ("ok", about)


def test_another_pid_namespace_is_ok_and_mentioned() -> None:
    found = namespaces.judge_pids(
        Segments(workers=(API, API._replace(name="api/1", pid=0), API._replace(name="x", pid=None)))
    )
    assert (found.state, found.seen, found.about) == ("ok", "api/1: in another pid namespace", ("api/1",))


def test_processes_can_be_observed_without_proc(tmp_path: Path) -> None:
    from brickd.doctor.processes import observe

    assert observe("/dev/shm", tmp_path / "nothing") == Processes((), 0, 0, 0)
    (tmp_path / "12").mkdir()
    (tmp_path / "13").mkdir()
    (tmp_path / "13/maps").write_bytes(b"7f-8f r-xp 0 00:01 1 /x/brick_agent/_core.so\n" + os.urandom(99))
    found = observe("/dev/shm", tmp_path)
    assert [(process.pid, process.segments, process.settings) for process in found.found] == [(13, (), None)]
    assert found.seen == 2


# ---- the daemon


def of_daemon(seen: DaemonFacts) -> dict[str, CheckResult]:
    return {one.name: one for one in daemon.judge(seen, Build("0.2.0", "1a"))}


def test_a_missing_daemon_is_ok() -> None:
    assert {one.state for one in daemon.judge(DaemonFacts("/run/brickd-ops"), Build("0.2.0", "1a"))} == {"ok"}


def test_a_daemon_that_does_not_answer_is_broken_and_must_be_restarted() -> None:
    found = of_daemon(DaemonFacts("/run/x", pid=7, silence="nobody listens"))["daemon"]
    assert (found.state, found.fix) == ("broken", "brickd down && brickd up -d")
    assert "process 7 runs and does not answer: nobody listens" in found.seen
    assert of_daemon(DaemonFacts("/run/x", pid=7, build=Build("0.2.0", "1a")))["daemon"].seen == "process 7 answers"
    elsewhere = of_daemon(DaemonFacts("/run/x", pid=0, build=Build("0.2.0", "1a")))["daemon"]
    assert elsewhere.seen == "a process of another pid namespace answers"


@pytest.mark.parametrize(
    ("version", "fix"), [("0.1.9", "brickd down && brickd up -d"), ("0.10.0", "pip install --upgrade .")]
)
def test_doctor_advises_to_replace_the_older_of_daemon_and_command(version: str, fix: str) -> None:
    found = of_daemon(DaemonFacts("/run/x", pid=7, build=Build(version, "1a")))["daemon"]
    assert (found.state, found.fix) == ("advice", fix)
    assert found.seen == f"process 7 answers and is brickd {version}, this is brickd 0.2.0"


def test_doctor_advises_to_restart_a_daemon_of_another_build() -> None:
    found = of_daemon(DaemonFacts("/run/x", pid=7, build=Build("0.2.0", "2b")))["daemon"]
    assert (found.state, found.fix) == ("advice", "brickd down && brickd up -d")
    assert found.seen == "process 7 answers and is another build of brickd 0.2.0 (2b, this is 1a)"


def test_after_a_killed_daemon_the_advice_is_to_start_one() -> None:
    found = of_daemon(DaemonFacts("/run/x", ended="/run/x/socket"))["daemon"]
    assert (found.state, found.fix) == ("advice", "brickd up -d")
    assert found.seen == "no process listens at /run/x/socket: its daemon was killed"


def test_a_directory_writable_by_others_is_reported_with_chmod() -> None:
    found = of_daemon(DaemonFacts("/run/a b", wrong="drwxrwxrwx of user 0"))["daemon-directory"]
    assert (found.state, found.fix) == ("broken", "chmod 700 '/run/a b'")


def test_a_directory_that_cannot_be_created_is_advice() -> None:
    found = of_daemon(DaemonFacts("/run/x", missing="this user cannot write to /run"))["daemon-directory"]
    assert (found.state, "BRICKD_RUNTIME_DIR" in str(found.fix)) == ("advice", True)


@pytest.mark.parametrize(("free", "state"), [(31 * MIB, "advice"), (32 * MIB, "ok")])
def test_too_little_space_for_a_checkpoint_is_reported(free: int, state: str) -> None:
    assert of_daemon(DaemonFacts("/run/x", free_bytes=free))["daemon-directory"].state == state


def test_a_checkpoint_that_cannot_be_read_or_written_is_broken() -> None:
    damaged = of_daemon(DaemonFacts("/run/x", checkpoint="/run/x/c d", damage="is damaged"))["checkpoint"]
    assert (damaged.state, damaged.fix) == ("broken", "mv '/run/x/c d' '/run/x/c d'.refused")
    full = of_daemon(DaemonFacts("/run/x", pid=7, trouble="No space left on device"))["checkpoint"]
    assert (full.state, full.fix) == ("broken", "df /run/x")


# ---- keys


def of_keys(*given: int | None, service: str = "api") -> tuple[ReadSegment, ...]:
    return tuple(
        ReadSegment(f"{service}/{n}", f"brickd-{service}{n}", pid=n, service=service, key=key)
        for n, key in enumerate(given)
    )


@pytest.mark.parametrize(
    ("given", "seen", "about"),
    [
        ((7, 7, 9), "a different key in api/2 than in api/0", ("api/2",)),
        ((9, 7, None, 7), "a different key in api/0 than in api/1", ("api/0",)),
        ((7, 0), "no key in api/1, one in api/0", ("api/1",)),
        ((0, 0, 7), "a key in api/2, none in api/0", ("api/2",)),
        ((7, 0, 9), "a different key in api/1, api/2 than in api/0", ("api/1", "api/2")),
    ],
)
def test_workers_with_another_key_than_most_of_their_service_are_reported(
    given: tuple[int | None, ...], seen: str, about: tuple[str, ...]
) -> None:
    (found,) = checksum_keys.judge(Segments(of_keys(*given) + of_keys(8, 8, service="batch")), "/s/a key")
    assert (found.name, found.state, found.seen, found.about) == ("keys", "advice", seen, about)
    assert found.fix == "BRICKD_KEY_FILE='/s/a key'"


def test_differing_keys_of_dead_workers_and_other_services_are_ok() -> None:
    dead = of_keys(7, 9)[1]._replace(pid=None)
    for workers in (
        of_keys(7, 7),
        of_keys(0, 0),
        of_keys(7, None),
        (),
        (*of_keys(7), dead),
        of_keys(7) + of_keys(9, service="b"),
    ):
        (found,) = checksum_keys.judge(Segments(workers), "/key")
        assert (found.name, found.state) == ("keys", "ok")


# ---- tensors that workers cannot read


def test_a_window_that_is_too_small_is_reported_with_a_sufficient_size() -> None:
    found = numerics.judge(numerics.HeldFingerprints(64 * MIB, 7 * SECOND, 1_000, 20))
    assert found.state == "advice"
    dropped = "20 of 1,000 (2.0 %) were dropped before another worker had the same inputs"
    assert found.seen == f"the last 7.0 s in 64 MiB: {dropped}"
    assert found.fix == "brickd down && brickd up -d --numerics-bytes 1GiB"
    for fine in (
        None,
        numerics.HeldFingerprints(64 * MIB, 61 * SECOND, 1_000, 20),
        numerics.HeldFingerprints(64 * MIB, 7 * SECOND, 1_000, 10),
        numerics.HeldFingerprints(1024 * MIB, 7 * SECOND, 1_000, 20),
    ):
        assert numerics.judge(fine).state == "ok"


# ---- recordings, span details


def test_unfetched_recordings_are_reported_with_the_path_of_the_newest() -> None:
    found = unfetched_recordings.judge(
        (UnfetchedRecording("aa", "/s/recordings", 3 * MIB), UnfetchedRecording("bb", "/s/recordings", 9 * MIB))
    )
    assert (found.state, found.fix, found.about) == ("advice", "brickd record --fetch bb", ("aa", "bb"))
    assert found.seen == "2 recordings not fetched in /s/recordings, 12 MiB"
    assert unfetched_recordings.judge(()).state == "ok"


def test_detailed_spans_without_a_reader_are_reported_with_their_workers() -> None:
    found = segments.judge_unread(Segments((API, API._replace(name="api/1", unread=True))))
    assert (found.state, found.seen, found.fix, found.about) == ("advice", "set in api/1", "brickd up -d", ("api/1",))
    assert segments.judge_unread(ALIVE).state == "ok"
