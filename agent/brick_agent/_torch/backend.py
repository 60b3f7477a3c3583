"""The settings that decide the last bits of a result, apart from weights and inputs.

Owns: the description of the settings. Two calls have the same description if their results can be compared. Must not
know: checksums, parts. Invariants: each description has the current settings, because the host may change them; torch
is never imported.
"""

from __future__ import annotations

import sys

from brick_agent._core import brick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brick_agent._core import Brick


class Backend:
    """The settings of a model."""

    def __init__(self, model: Any, name: str | None) -> None:
        every = list(model.modules())
        packages = sorted({type(each).__module__.partition(".")[0] for each in every} | {"torch"})
        versions = ((name, getattr(sys.modules.get(name), "__version__", None)) for name in packages)
        self._versions = [f"{name} {version}" for name, version in versions if isinstance(version, str)]
        configs = {id(config): config for each in every if (config := vars(each).get("config")) is not None}
        self._configs = list(configs.values())
        self._name = name
        torch = sys.modules["torch"]
        self._processor = torch.backends.cpu.get_cpu_capability()
        self._rows: dict[tuple[str, int, str], Brick] = {}
        self._now = torch.get_num_threads, torch.get_float32_matmul_precision

    def describe(self, how: str) -> str:
        """Describe the current settings; `how`: eager or compiled."""
        torch = sys.modules["torch"]
        threads = f"{torch.get_num_threads()} threads"
        if self._name is not None:
            return f"{self._name}, {threads}"
        kinds = {getattr(config, "_attn_implementation", None) for config in self._configs}
        attention = sorted(kind for kind in kinds if isinstance(kind, str))
        precision = torch.get_float32_matmul_precision()
        return ", ".join([how, *attention, *_coarse(precision), threads, *self._versions])

    def of_rows(self, how: str) -> Brick:
        """Return the description for a part without attention, as a handle.

        The description names the processor's instructions, because rows are compared exactly.
        """
        threads, precision = self._now
        now = how, threads(), precision()
        known = self._rows.get(now)
        if known is None:
            known = self._rows[now] = brick(self._text_of_rows(*now))
        return known

    def _text_of_rows(self, how: str, threads: int, precision: str) -> str:
        own = [how, *_coarse(precision)] if self._name is None else [self._name]
        return ", ".join([*own, f"{threads} threads", self._processor, *(self._versions if self._name is None else ())])


def _coarse(precision: str) -> list[str]:
    return [] if precision == "highest" else [f"{precision} precision"]
