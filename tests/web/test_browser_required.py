"""Whether a test without a browser is skipped, or fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.outcomes import OutcomeException, Skipped
from browser import REQUIRED, browsing


@pytest.mark.parametrize("module", ["playwright.sync_api", "chromium"])
@pytest.mark.parametrize("required", [True, False])
def test_a_test_without_a_browser_fails_only_if_a_browser_is_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, required: bool
) -> None:
    if module == "chromium":
        monkeypatch.setitem(sys.modules, "playwright.sync_api", pytest)
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv(REQUIRED, "required" if required else "")
    with pytest.raises(OutcomeException, match=f"^needs {module.partition('.')[0]} ") as found, browsing():
        pass
    assert isinstance(found.value, Skipped) != required
