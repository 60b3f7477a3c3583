"""scripts/sanitize: the text that a deliberate fault replaces is really in the source."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys

from conftest import ROOT


def test_each_deliberate_fault_finds_the_text_that_it_changes() -> None:
    loader = importlib.machinery.SourceFileLoader("sanitize", str(ROOT / "scripts" / "sanitize"))
    spec = importlib.util.spec_from_loader("sanitize", loader)
    assert spec is not None
    module = sys.modules["sanitize"] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    groups = [group for group in vars(module).values() if isinstance(group, tuple)]
    faults = [each for group in groups for each in group if isinstance(each, module.Mutant)]
    assert len(faults) > 20
    edits = [(fault.name, path, text) for fault in faults for path, text, _ in fault.edits]
    assert [(name, text) for name, path, text in edits if text not in (ROOT / path).read_text()] == []
