"""The paths of a daemon and its clients: the runtime directory and the files in it.

Owns: the paths, from the environment or by default. Must not know: the content of the files. Invariant: in the same
environment, on the same machine, the daemon and every verb use the same paths.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple


class Runtime(NamedTuple):
    """The paths of one daemon.

    Attributes:
        directory: the daemon's runtime directory, of mode 0700, or 0710 if a group may reach the socket.
        state: the directory of files that survive a restart of the daemon.
    """

    directory: Path
    socket: Path
    state: Path

    @property
    def lock(self) -> Path:
        """The file whose first byte is locked while the daemon runs."""
        return self.directory / "lock"

    @property
    def checkpoint(self) -> Path:
        """The state of the daemon, replaced atomically."""
        return self.directory / "checkpoint"

    @property
    def weights(self) -> Path:
        """The state of the workers' weights, replaced atomically before the checkpoint."""
        return self.directory / "weights"

    @property
    def recordings(self) -> Path:
        """The recordings that are being written, or not fetched yet."""
        return self.state / "recordings"

    @property
    def sources(self) -> Path:
        """The sources of kernels, one file each."""
        return self.state / "sources"

    @property
    def log(self) -> Path:
        """The log of a detached daemon."""
        return self.directory / "log"


def runtime() -> Runtime:
    """Return the paths for the current environment."""
    directory = Path(os.environ.get("BRICKD_RUNTIME_DIR") or _default())
    socket = Path(os.environ.get("BRICKD_SOCKET") or directory / "socket")
    return Runtime(directory, socket, Path(os.environ.get("BRICKD_STATE_DIR") or _state(directory)))


def _default() -> Path:
    service, session = Path(f"/run/brickd-{_user()}"), os.environ.get("XDG_RUNTIME_DIR")
    return service if not session or _ours(service) else Path(session) / "brickd"


def _ours(directory: Path) -> bool:
    """Whether a system service created the directory for this user. The service's daemon also serves sessions."""
    try:
        return directory.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _state(directory: Path) -> Path:
    """Return the user's state directory; without a home, one in the runtime directory.

    Containers report / as the home of a uid without a name.
    """
    if own := os.environ.get("XDG_STATE_HOME"):
        return Path(own) / "brickd"
    home = os.path.expanduser("~")
    return Path(home, ".local", "state", "brickd") if home != "/" and os.path.isdir(home) else directory / "state"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container with a uid without a name
        return str(os.geteuid())
