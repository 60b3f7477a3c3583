"""The examples of the old profilers' names run, and print what docs/porting.md shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

EXAMPLES = sorted(path.name for path in (ROOT / "agent" / "examples").glob("*.py"))
PAGE = (ROOT / "docs" / "porting.md").read_text()
SHOWN = dict(re.findall(r"```text\n\$ python3 agent/examples/(\w+\.py)\n(.*?)```", PAGE, re.DOTALL))


def test_the_page_on_porting_shows_each_example() -> None:
    assert sorted(SHOWN) == EXAMPLES == ["graph.py", "profiler.py", "tiles.py", "traces.py"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_the_page_on_porting_shows_and_makes_no_mistake(prefix: str, name: str) -> None:
    environment = os.environ | {"BRICKD_STRICT": "1"}
    ended = subprocess.run(
        [sys.executable, "-P", ROOT / "agent" / "examples" / name],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == SHOWN[name].splitlines()
