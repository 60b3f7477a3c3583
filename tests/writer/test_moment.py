"""A moment that the host numbers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT, WRITER
from verbs import document


def test_inspect_shows_the_moments_of_a_native_host(compiled: Callable[..., Path], prefix: str) -> None:
    program = compiled("moment", (ROOT / "tests" / "native" / "moment.c", *WRITER))
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "there\n"
        (lane,) = document("inspect")["lanes"]
        host.communicate()
    events = lane["events"]
    assert [(each["kind"], each["id"]) for each in events] == [("moment", f"{42:016x}"), ("moment", f"{0:016x}")]
    assert 0 <= events[0]["since_start_ns"] <= events[1]["since_start_ns"]
