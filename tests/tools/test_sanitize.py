"""scripts/sanitize: it finds the text that a deliberate fault replaces, and the words of a program that finds one."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def sanitize() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("sanitize", str(ROOT / "scripts" / "sanitize"))
    spec = importlib.util.spec_from_loader("sanitize", loader)
    assert spec is not None
    module = sys.modules["sanitize"] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_each_deliberate_fault_finds_the_text_that_it_changes(sanitize: ModuleType) -> None:
    groups = [group for group in vars(sanitize).values() if isinstance(group, tuple)]
    faults = [each for group in groups for each in group if isinstance(each, sanitize.Mutant)]
    assert len(faults) > 20
    edits = [(fault.name, path, text) for fault in faults for path, text, _ in fault.edits]
    assert [(name, text) for name, path, text in edits if text not in (ROOT / path).read_text()] == []


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("fingerprint_window", '"fingerprints: '),
        ("fuzz", '"fuzz: '),
        ("graph", '"race: totals: '),
        ("tensors", '"tensors: '),
    ],
)
def test_a_program_that_finds_a_fault_is_understood(sanitize: ModuleType, program: str, words: str) -> None:
    assert f"fprintf(stderr, {words}" in (ROOT / "tests" / "native" / f"{program}.c").read_text()
    assert sanitize.verdict(1, words.strip('"')) == sanitize.TORN
