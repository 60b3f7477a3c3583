"""Why the rows of a site are unknown: the reasons, and the words for them.

Owns: the words for the reasons. They come from the agent (agent/brick_agent/_torch/row_wise.py) and the judgement
(row_verdict.py). Must not know: what is counted. Invariant: unknown reasons of later agents are shown unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

from brickd.base.units import count, plural

# The reasons why a site, or a call of a site, has no rows. With the last three reasons, the rows differ but are not
# judged.
REASONS = {
    "training": "in training mode",
    "compiled": "compiled",
    "quantized": "quantized",
    "stateful": "stateful",
    "not_row_wise": "not row-wise",
    "arguments": "with other arguments than a single tensor",
    "output": "with an output that does not have the rows of the input",
    "unreadable": "with a tensor that cannot be read",
    "capture": "in graph capture",
    "settings": "with settings that cannot be read",
    "unsteady": "where most workers contradict themselves",
    "unconfirmed": "not confirmed to be row-wise",
    "few": "where too few rows differ to name a worker",
}


# The reasons why the history of a sequence is unknown. An engine gives its own reasons; these come from the agent. With
# "output", the history is known, but an output was not recorded.
HISTORIES = {
    "unseen": "whose tokens brickd did not see",
    "unreadable": "with tokens that cannot be read",
    "arguments": "with wrong arguments",
    "output": "with an output that does not have one row for each token",
}


def without_histories(steps: Mapping[str, int]) -> str:
    """Say in how many steps of sequences the history was unknown, in total and for each reason.

    >>> without_histories({"evicted": 2, "unseen": 1})
    'histories unknown in 3 steps of sequences (2 evicted, 1 whose tokens brickd did not see)'
    """
    why = ", ".join(f"{count(n)} {HISTORIES.get(each, each.replace('_', ' '))}" for each, n in steps.items())
    return f"histories unknown in {plural(sum(steps.values()), 'step')} of sequences ({why})"


def reason(of: str) -> str:
    """Say why the rows of a site are unknown."""
    return REASONS.get(of, of.replace("_", " "))


def without_rows(sites: Mapping[str, int]) -> str:
    """Say how many sites have unknown rows, in total and for each reason.

    >>> without_rows({"stateful": 2, "of_later": 1})
    'rows of 3 sites unknown (2 stateful, 1 of later)'
    """
    why = ", ".join(f"{count(n)} {reason(each)}" for each, n in sites.items())
    return f"rows of {plural(sum(sites.values()), 'site')} unknown ({why})"
