"""A report: the web page with its data in one HTML file, which opens from a disk without a network.

Owns: how the files of the page become one file, its Content-Security-Policy. Must not know: what the documents contain,
what the modules do. Invariants: The file loads nothing, and its scripts are only those of brickd: the policy has their
hashes. No string of a document ends the element that has it. The names in the scripts are those of the source.
"""

from __future__ import annotations

import base64
import graphlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from brickd.web.assets import assets
from brickd.web.page import SHELL
from brickd.web.report_documents import ReportDocument

_MAIN, _STYLE = "main.js", "page.css"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b|\bimport\(|</script|<!--", re.MULTILINE | re.IGNORECASE)


def report_page(documents: Iterable[ReportDocument], made: str) -> bytes:
    """Return the file; `made` is the time at which it was made, in RFC 3339 format."""
    script, style = one_script(_modules()), assets()[_STYLE].body.decode()
    data = f'{{"made":{json.dumps(made)},"requests":[{",".join(each.embedded() for each in documents)}]}}'
    shell = assets()[SHELL].body.decode()
    for old, new in (
        ('<meta charset="utf-8">', f'<meta charset="utf-8">\n{_policy(script, style)}'),
        ('<link rel="stylesheet" href="web/page.css">', f"<style>{style}</style>"),
        ('<script type="module" src="web/main.js"></script>', f'<script type="module">{script}</script>'),
        ("</body>", f'<script type="application/json" id="documents">{data}</script>\n</body>'),
    ):
        before, found, after = shell.partition(old)
        if not found:
            raise ValueError(f"{SHELL} has no {old}")
        shell = before + new + after
    return shell.encode()


def one_script(modules: Mapping[str, str]) -> str:
    """Return all modules as one script. Each becomes a function that returns what the module exports."""
    needed = {name: {other for _, other in _IMPORT.findall(text)} for name, text in modules.items()}
    return "".join(_function(name, modules[name]) for name in graphlib.TopologicalSorter(needed).static_order())


def _function(name: str, text: str) -> str:
    body = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_variable(found[2])};\n", text)
    exported = _EXPORT.findall(body)
    body = _EXPORT.sub("", body)
    left = _LEFT.search(body)
    if left is not None:
        raise ValueError(f"{name}: {left[0]} cannot be in a report")
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"


def _variable(name: str) -> str:
    return name.replace(".", "_")


def _modules() -> dict[str, str]:
    return {name: asset.body.decode() for name, asset in assets().items() if name.endswith(".js")}


def _policy(script: str, style: str) -> str:
    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    policy = (
        f"default-src 'none'; script-src {source(script)}; style-src {source(style)}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
