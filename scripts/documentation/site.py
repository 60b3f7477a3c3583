"""The site: built from mkdocs.yml and docs/ by mkdocs.

Owns: the call of mkdocs. Must not know: the content of pages. Invariant: a warning of mkdocs fails the build.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def build(root: Path) -> bool:
    """Build root/site; return whether mkdocs had no warning."""
    # Material prints advertisements for other versions of mkdocs, unless NO_MKDOCS_2_WARNING is set. -P: use the
    # installed brickd, because it is compiled.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    # Never pass --quiet: mkdocs would not count its warnings, and strict mode would find none.
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", "mkdocs.yml"]
    return subprocess.run(command, env=environment, cwd=root, check=False).returncode == 0
