"""The verb `doctor`.

Owns: how findings are shown. Must not know: individual checks. Invariants: Findings that need a fix come first, each
with its complete fix on the next line, on a terminal of any width. Checks without a problem are counted. This verb runs
even if no other verb works.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.base import escape
from brickd.cli.output import emit, output_options
from brickd.doctor.check import CheckResult, results_document
from brickd.errors import Exit
from brickd.screens.screen import Screen

_COLOURS = {"broken": "red", "advice": "yellow"}


@click.command()
@output_options
def doctor(output: str) -> Exit:
    """Find problems of brickd on this machine, with their fixes.

    Prints each problem with a command that fixes it. Use it when "brickd status" shows nothing. Exits 1 if something is
    broken.
    """
    findings = _findings()
    document = results_document(findings)
    emit(document, output, table=lambda screen: render(findings, screen), rows="findings")
    return Exit.OK if document["healthy"] else Exit.DIFFERS


def _findings() -> list[CheckResult]:
    try:
        from brickd.doctor.run_checks import examine
    except ImportError as error:
        from brickd.doctor.versions import unloadable

        return [unloadable(str(error))]
    return examine()


def render(findings: Sequence[CheckResult], screen: Screen) -> list[str]:
    """The lines of the screen."""
    lines = []
    for finding in findings:
        if finding.fix is not None:
            text = f"{finding.state}  {finding.name}: {finding.seen}; expected: {finding.wanted}"
            why = f"  # {escape.text(finding.why)}" if finding.why else ""
            lines.append(screen.paint(escape.text(text, screen.width), _COLOURS[finding.state]))
            lines.append(f"        {escape.text(finding.fix)}{why}")
    fine = sum(finding.state == "ok" for finding in findings)
    if fine < len(findings):
        return [*lines, f"{fine} of {len(findings)} checks fine"]
    return [*lines, screen.paint(f"all {fine} checks fine", "green")]
