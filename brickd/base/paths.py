"""Where a daemon and its clients meet: the runtime directory and the files in it.

Owns: the paths, from the environment or by default. Must not know: what is in the files. Invariant: the same
environment, on the same machine, names the same places to the daemon and to every verb.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple


class Runtime(NamedTuple):
    """The paths of one daemon.

    Attributes:
        directory: the daemon's own, of mode 0700, or 0710 where a group may reach the socket.
        state: of files that outlive the daemon.
    """

    directory: Path
    socket: Path
    state: Path

    @property
    def lock(self) -> Path:
        """Its first byte is locked as long as the daemon runs."""
        return self.directory / "lock"

    @property
    def checkpoint(self) -> Path:
        """What the daemon alone knows, replaced as a whole."""
        return self.directory / "checkpoint"

    @property
    def weights(self) -> Path:
        """State of the workers' weights, replaced as a whole before the checkpoint that counts it."""
        return self.directory / "weights"

    @property
    def recordings(self) -> Path:
        """Recordings that are being written, or not fetched yet."""
        return self.state / "recordings"

    @property
    def sources(self) -> Path:
        """What kernels were compiled from, a file each."""
        return self.state / "sources"

    @property
    def log(self) -> Path:
        """The log of a detached daemon."""
        return self.directory / "log"


def runtime() -> Runtime:
    """The places that the environment names."""
    directory = Path(os.environ.get("BRICKD_RUNTIME_DIR") or _default())
    socket = Path(os.environ.get("BRICKD_SOCKET") or directory / "socket")
    return Runtime(directory, socket, Path(os.environ.get("BRICKD_STATE_DIR") or _state(directory)))


def _default() -> Path:
    service, session = Path(f"/run/brickd-{_user()}"), os.environ.get("XDG_RUNTIME_DIR")
    return service if not session or _ours(service) else Path(session) / "brickd"


def _ours(directory: Path) -> bool:
    """Whether root made it for this user: then the service is our daemon, in a session too."""
    try:
        return directory.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _state(directory: Path) -> Path:
    """Beside the user's own state; of a user without a home in the runtime directory.

    Containers say that / is the home of a number without a name.
    """
    if own := os.environ.get("XDG_STATE_HOME"):
        return Path(own) / "brickd"
    home = os.path.expanduser("~")
    return Path(home, ".local", "state", "brickd") if home != "/" and os.path.isdir(home) else directory / "state"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container that was given a number without a name
        return str(os.geteuid())
