"""Ranges of numbers for options.

Owns: what click's own ranges let through and no verb can use. Must not know: any verb.
"""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A range in which what is no number at all (nan) is none either."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error where it is none of the range."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number: {self.min} to {self.max} wanted", param, ctx)
        return number
