"""The settings that decide the last bits of a result, apart from weights and inputs.

Owns: the description of the settings. Two calls have the same description if their results can be compared. Must not
know: checksums, parts. Invariants: the settings are read again for each description, because the host may change them;
a setting that cannot be read is never described as if it had its default value; torch is never imported.
"""

from __future__ import annotations

import functools
import os
import re
import sys

from brick_agent._core import brick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from brick_agent._core import Brick

UNKNOWN = "settings"  # the reason if a call has no rows because a setting is unknown
_CPUINFO = "/proc/cpuinfo"
_CPUINFO_BYTES = 4096  # enough for the entry of the first processor
_MODEL = re.compile(r"(?:vendor_id|cpu family|model|model name|CPU implementer|CPU part|isa|uarch)\t*: *(\S.*)")
# Environment variables that make libraries choose other kernels on the same processor.
_ENVIRONMENT = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")


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
        self._processor = [torch.backends.cpu.get_cpu_capability(), *processor(), *_environment()]
        self._rows: dict[tuple[object, ...], Brick] = {}
        self._histories: dict[tuple[object, ...], str] = {}
        onednn = torch._C._get_mkldnn_enabled
        self._now = torch.get_num_threads, torch.get_float32_matmul_precision, torch.is_autocast_enabled, onednn

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

    def describe_exactly(self, how: str) -> str:
        """Like `describe`, and name the processor too, for results that must be equal bit for bit."""
        return ", ".join([self.describe(how), *self._processor])

    def of_rows(self) -> Brick | str:
        """Return a handle with the description, for an eager part without attention.

        Otherwise return the reason why the part has no rows. The description names the processor, because rows are
        compared exactly.
        """
        now = self._settings()
        if now is None:
            return UNKNOWN
        known = self._rows.get(now)
        if known is None:
            known = self._rows[now] = brick(self._text_of_rows(*now))
        return known

    def of_histories(self) -> str | None:
        """Describe the settings for an eager part with attention; None: a setting is unknown.

        Torch chooses other kernels if it records gradients, and an attention may have several ones.
        """
        torch, now = sys.modules["torch"], self._settings()
        if now is None:
            return None
        kinds = tuple(kind for config in self._configs if (kind := getattr(config, "_attn_implementation", None)))
        gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        fused = torch._C._get_flash_sdp_enabled(), torch._C._get_math_sdp_enabled()
        known = self._histories.get((now, kinds, gradients, fused))
        if known is None:
            mode = "inference mode" if gradients[0] else "gradients" if gradients[1] else "no gradients"
            flags = [] if fused == (True, True) else [f"flash {fused[0]}, math {fused[1]}"]
            known = ", ".join([self._text_of_rows(*now), *map(str, kinds), *flags, mode])
            self._histories[now, kinds, gradients, fused] = known
        return known

    def _settings(self) -> tuple[int, str, str | bool, bool] | None:
        threads, precision, autocast, onednn = self._now
        try:
            try:
                coarse = precision()
            except RuntimeError:  # the host has set the precision for one library only
                coarse = _of_onednn()
            return threads(), coarse, autocast("cpu") and _autocast(), onednn()
        except Exception:
            return None

    def _text_of_rows(self, threads: int, precision: str, autocast: str | bool, onednn: bool) -> str:
        parts = [] if self._name is not None else _coarse(precision)
        parts += [f"autocast {autocast}"] if autocast else []
        parts += [] if onednn else ["without oneDNN"]
        own = ["eager"] if self._name is None else [self._name]
        versions = self._versions if self._name is None else ()
        return ", ".join([*own, *parts, f"{threads} threads", *self._processor, *versions])


def _coarse(precision: str) -> list[str]:
    return [] if precision == "highest" else [f"{precision} precision"]


def _autocast() -> str:
    return str(sys.modules["torch"].get_autocast_dtype("cpu")).removeprefix("torch.")


def _of_onednn() -> str:
    """Return the precision of matrix products in oneDNN, which computes them on a processor."""
    return f"oneDNN {sys.modules['torch']._C._get_fp32_precision_getter('mkldnn', 'matmul')}"


@functools.cache
def processor(path: str = _CPUINFO) -> tuple[str, ...]:
    """Return the vendor and the model of the first processor, as the kernel names them; empty: unknown.

    The model of the processor matters, because libraries also choose kernels by this model: two processors with the
    same instructions may round differently.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            first = file.read(_CPUINFO_BYTES).split("\n\n")[0]
    except OSError:
        return ()
    found = [match[1].strip() for line in first.splitlines() if (match := _MODEL.fullmatch(line)) is not None]
    return (" ".join(found),) if found else ()


def _environment() -> list[str]:
    return [f"{name}={os.environ[name]}" for name in _ENVIRONMENT if os.environ.get(name)]
