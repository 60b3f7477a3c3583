"""What of a worker's recording is on, in words.

Owns: those words. Must not know: who asks, how it is turned on or off. Invariant: an order takes the words that answers
have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

OnOff = Literal["on", "off"]


def settings(*, spans: bool, off: bool) -> dict[str, OnOff]:
    """What is set, in the words of an order."""
    return {"spans": "on" if spans else "off", "recording": "off" if off else "on"}


def sentence(said: Mapping[str, Any]) -> str:
    """What the workers of a service are told, in a sentence."""
    told = f"spans {said['spans']}, recording {said['recording']}"
    return f"{told}, fingerprints {said['fingerprints']}, sites {', '.join(said['sites'])}"
