"""mkdocs hooks: fill in the commands, and remove links to files of the repository.

Owns: the differences between a page in the repository and on the site. Must not know: the form of commands.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

# mkdocs loads this file by its path, so the package is not on sys.path
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from documentation.cli_page import PAGE, filled
from documentation.links import links

_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return a page as the site needs it."""
    text = filled(markdown) if page.file.src_uri == PAGE else markdown
    folder, docs = Path(page.file.abs_src_path).parent, Path(config["docs_dir"]).resolve()
    for link in reversed(list(links(text))):
        target = (folder / link[2].partition("#")[0]).resolve()
        if target.exists() and not target.is_relative_to(docs):  # the site has no copy of this file
            text = text[: link.start()] + link[1] + text[link.end() :]
    return text


def on_page_content(html: str, **_: Any) -> str:
    r"""Return the page in HTML. In code inside a table, `\|` means `|` on GitHub, but mkdocs keeps the backslash.

    >>> on_page_content(r"<td><code>a\|b</code></td> \|")
    '<td><code>a|b</code></td> \\|'
    """
    return _CELL.sub(lambda cell: cell[0].replace(r"\|", "|"), html)
