"""The how-to pages: their examples run unchanged, with real processes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from conftest import ROOT
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from model_servers import free_port
from pages import HOW_TO, blocks, commands, reader

from brickd.cli import brickd as group
from brickd.query.queries import step_number, step_text
from brickd.top.keys import KEYS

PAGES = sorted(path.stem for path in HOW_TO.glob("*.md"))
# The packages that each page needs in addition to those of the tests.
NEEDS: dict[str, Sequence[str]] = {
    "instrument-python": ("fastapi", "uvicorn"),
    "instrument-torch": ("torch",),
}
RUN = [page for page in PAGES if any(not each.elsewhere for each in commands((HOW_TO / f"{page}.md").read_text()))]
QUICK = {"be-told-of-problems", "find-a-hang"}


def text(page: str) -> str:
    return (HOW_TO / f"{page}.md").read_text()


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.ci if page in QUICK else pytest.mark.slow) for page in RUN]
)
def test_the_commands_of_a_page_print_the_shown_output(page: str, prefix: str, tmp_path: Path) -> None:
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module, reason=f"{module} is not installed: .ci/run does it")
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    with reader(tmp_path, **{"8000": str(free_port()), "/path/to/brickd": str(ROOT)}) as one:
        one.follow(text(page))


def test_a_command_after_sudo_in_a_block_runs_only_at_the_reader() -> None:
    block = "```console\n$ echo 1\n$ sudo systemctl restart brickd@www\n$ curl localhost\n```\n"
    assert [each.elsewhere for each in commands(block * 2)] == [False, True, True] * 2


@pytest.mark.parametrize("page", PAGES)
def test_the_python_on_a_page_compiles(page: str) -> None:
    for block in blocks(text(page)):
        if block.language == "python":
            compile(block.text, page, "exec")


# Names that code in the pages uses without a definition.
GIVEN = """
from array import array
request_id, elapsed_ns, ns, handle, n, k, m = 7, 1000, 100, 1, 2, 3, 4
ptx = "text of a kernel"
out, x, positions, tensor = (array("f", [1, 2, 3]) for _ in range(4))
model = {"layers.0.mlp.up.weight": array("f", [1, 2])}
rms_norm = brick.brick("rms_norm")
brick.init(service="api")
"""
SNIPPETS = [
    (page, block.text)
    for page in PAGES
    for block in blocks(text(page))
    if block.language == "python" and not block.title
]


@pytest.mark.parametrize(("page", "snippet"), SNIPPETS, ids=[f"{page}-{n}" for n, (page, _) in enumerate(SNIPPETS)])
def test_a_snippet_runs_without_a_mistake(worker: Start, page: str, snippet: str) -> None:
    program = worker(f"{GIVEN}\n{snippet}\nreport('done')\n", BRICKD_STRICT="1")
    assert program.next_report() == "done"
    assert (program.end(), program.stderr) == (0, "")


@given(st.text())
def test_the_documented_digits_of_a_step_are_those_that_brickd_shows(step: str) -> None:
    (snippet,) = (snippet for _, snippet in SNIPPETS if "def step_digits" in snippet)
    names: dict[str, Any] = {"print": lambda digits: None}
    exec(snippet, names)
    assert int(names["step_digits"](step), 16) == step_number(step) or step_text(step) is None
    call, _, shown = snippet.splitlines()[-1].partition("#")
    assert eval(call, names | {"print": str}) == shown.strip()


def test_the_keys_of_the_live_screen_are_those_of_the_program() -> None:
    section = text("watch-workers-live").partition("\n## Keys\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", section, re.MULTILINE)
    assert rows == [(key.name, key.help) for key in KEYS]


_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_INLINE = re.compile(r"`(brickd [^`]+)`")


@pytest.mark.parametrize("page", PAGES)
def test_every_verb_and_option_of_a_page_exists(page: str) -> None:
    lines = [
        line
        for block in blocks(text(page))
        if block.language in ("console", "bash")
        for line in block.text.splitlines()
    ]
    reported = [re.sub(r"^\$ ", "", line) for line in lines] + _INLINE.findall(text(page))
    context = click.Context(group)
    for line in reported:
        for part in re.split(r"[|;&]+ *| -- ", line.partition("  #")[0]):
            named = re.match(r"brickd ([a-z]+)", part)
            if named is None:
                continue
            verb = group.get_command(context, named[1])
            assert verb is not None, line
            known = {option for parameter in verb.params for option in parameter.opts}
            assert not [option for option in _OPTION.findall(part) if option not in known], line


def test_the_container_recipes_use_one_user_and_shared_mounts() -> None:
    kinds = {block.title or block.language: block.text for block in blocks(text("containers"))}
    image, docker, pod = kinds["Dockerfile"], text("containers"), kinds["server.yaml"]
    users = re.findall(r"(?:--user |runAsUser: |install -d -o )(\d+)", docker)
    assert len(users) == 5
    assert len(set(users)) == 1, "brickd reads only the segments of its own user"
    assert image.count("/run/brickd") == 2
    assert pod.count("mountPath: /dev/shm") == 2


def test_the_kubernetes_manifest_is_yaml_and_both_containers_share_the_memory() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: the docs extra does it")
    (manifest,) = (block.text for block in blocks(text("containers")) if block.title == "server.yaml")
    pod = yaml.safe_load(manifest)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 1001
    mounts = [{each["name"]: each["mountPath"] for each in one["volumeMounts"]} for one in pod["containers"]]
    assert [each["shm"] for each in mounts] == ["/dev/shm", "/dev/shm"]
    assert {each["name"] for each in pod["volumes"]} == {"shm", "runtime"}
    own = pod["containers"][1]["env"][0]["value"]
    assert own.startswith(mounts[1]["runtime"] + "/")


def test_the_documented_drop_ins_match_the_unit() -> None:
    unit = (ROOT / "systemd" / "brickd@.service").read_text()
    copied = [block.text for block in blocks(text("systemd")) if block.text.startswith("[Service]")]
    assert len(copied) == 2
    for each in copied:
        assert "".join(f"#   {line}\n" for line in each.splitlines()) in unit
