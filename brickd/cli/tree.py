"""The verb `tree`.

Owns: in which form a tree is printed. Must not know: segments, the forms.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from brickd.base import escape
from brickd.cli.ask import asked
from brickd.cli.output import column_option, emit, output_options
from brickd.cli.plain_tree import plain_tree
from brickd.cli.query_options import asks
from brickd.query.queries import TreeQuery
from brickd.screens.tree import render


@click.command()
@asks(TreeQuery)
@click.option("--critical", is_flag=True, help="Show the critical path, and how much slack the other nodes have.")
@click.option("--plain", is_flag=True, help="Print the bare tree, in the order of recording, without figures.")
@click.option("--dot", "as_dot", is_flag=True, help="Print the tree in the language of Graphviz.")
@column_option
@output_options
def tree(
    *,
    query: TreeQuery,
    recordings: Sequence[str],
    critical: bool,
    plain: bool,
    as_dot: bool,
    more: Sequence[str],
    output: str,
) -> None:
    """Show the call tree over all workers: totals, self times, shares.

    Below each brick, the tree shows the kernels that the brick launched, the bytes that it moved, and the bricks that
    it needs. A kernel has a time only if the program reported one.

    \b
    Examples:
      brickd tree --depth 3
      brickd tree --layers api
      brickd tree --plain > execution_tree.txt
      brickd tree --dot | dot -Tsvg > tree.svg
    """  # noqa: D301
    forms = {
        **{"--plain": plain, "--dot": as_dot, "--critical": critical, "--column": bool(more)},
        f"--output {output}": output != "table",
    }
    chosen = [form for form, given in forms.items() if given]
    if len(chosen) > 1 and (plain or as_dot):
        raise click.UsageError(f"{chosen[0]} contradicts {chosen[1]}: give one of them")
    if plain:
        query = query.replaced(layers=True)
    document = asked("tree", query, recordings=recordings)
    if plain:
        sys.stdout.write(plain_tree(document["nodes"], escape.text))
        return
    if as_dot:
        from brickd.cli.dot import dot

        sys.stdout.write(dot(document))
        return
    emit(document, output, table=lambda screen: render(document, screen, critical=critical, more=more), rows="nodes")
