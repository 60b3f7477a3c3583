"""The words that a redacted bundle does not contain: names of hosts and users, home folders, paths in variables.

Owns: which words these are, and what stands in their place. Must not know: documents, recordings. Invariants: A word is
replaced wherever it stands alone, so equal words stay equal in all members. No name service is asked over the network,
because it may not answer.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from brickd.base.files import read
from brickd.shm import _reader

HOST, DOMAIN, USER, HOME = "redacted-host", "redacted-domain", "redacted-user", "redacted-home"
_PASSWD_BYTES_MAX = 1 << 20
_FILES_MAX = 10_000  # files of other users in /dev/shm whose owners are looked up
_PEOPLE = range(1_000, 65_534)  # the user ids that distributions give to people
# Names that reveal nothing, and that occur in most texts.
_COMMON = frozenset(("", "root", "brickd", "nobody", "localhost", "(none)"))
_NO_HOMES = frozenset(
    ("/", "/bin", "/dev", "/dev/null", "/dev/shm", "/nonexistent", "/run", "/sbin", "/tmp", "/usr", "/var")
)
# A host in an address such as that of --notify-url, with its user and password, unless it is this machine.
_ANY_HOST = (
    r"""(?:(?<=http://)|(?<=https://))(?!127\.0\.0\.1\b|localhost\b|\[::1\])"""
    r"""(?:[^\s/"'`<>]*@)?(?:\[[^\]\s]*\]|[^\s/:"'`<>]+)"""
)
_ANY_HOME = r"""/(?:home|Users|export/home|var/home)/[^/\s"'`:,;()\[\]]+"""
_VARIABLE = "BRICKD_"
_PREFIX = "BRICKD_SHM_PREFIX"  # stays readable, because the names of all segments begin with it
_SCHEMA_KEY = re.compile(r"[a-z0-9_]+")


class PrivateWords:
    """Replaces private words in texts and documents."""

    def __init__(self, words: Mapping[str, str]) -> None:
        """Replace each word (a key) by its value; also replace home folders of any user, and hosts in addresses."""
        self._words = dict(words)
        # The longest first, because a path may begin with a shorter one.
        ordered = sorted(words.items(), key=lambda each: -len(each[0]))
        self._by_word = {word.casefold(): by for word, by in ordered}
        alone = "|".join(rf"{_edge(word)}{re.escape(word)}(?![A-Za-z0-9])" for word, _ in ordered)
        every = f"(?P<home>{_ANY_HOME})|(?P<host>{_ANY_HOST})" + (f"|{alone}" if alone else "")
        self._pattern = re.compile(every, re.IGNORECASE)

    def text(self, of: str) -> str:
        """Return the text without private words.

        >>> words = PrivateWords({"ann": USER, "gpu-7": HOST, "/srv/x": "$BRICKD_STATE_DIR"})
        >>> words.text("ann on GPU-7: /srv/x/key of annual gpu-70, /home/bob/x")
        'redacted-user on redacted-host: $BRICKD_STATE_DIR/key of annual gpu-70, redacted-home/x'
        """
        return self._pattern.sub(self._other, of)

    def and_host(self, host: str) -> PrivateWords:
        """Return these words, and the name of another host."""
        return PrivateWords(_usable(_of_host(host)) | self._words)

    def _other(self, found: re.Match[str]) -> str:
        word = found[0]
        return self._by_word.get(word.casefold(), HOME if found["home"] else HOST if found["host"] else USER)

    def value(self, of: Any, verbatim: Set[str] = frozenset()) -> Any:
        """Return a document without private words.

        Keys of a schema stay, even if a user has such a name. The values of the keys in `verbatim` stay, too.
        """
        if isinstance(of, str):
            return self.text(of)
        if isinstance(of, dict):
            return {self._key(key): each if key in verbatim else self.value(each, verbatim) for key, each in of.items()}
        return [self.value(each, verbatim) for each in of] if isinstance(of, list | tuple) else of

    def _key(self, of: Any) -> Any:
        return self.text(of) if isinstance(of, str) and not _SCHEMA_KEY.fullmatch(of) else of


def _edge(word: str) -> str:
    """Return what must come before a word: not a part of the same word."""
    return "" if word.startswith("/") else "(?<![A-Za-z0-9])"


def of_this_machine(environment: Mapping[str, str], hosts: Iterable[str] = ()) -> PrivateWords:
    """Return the private words of this machine and of its users; `hosts` are names of other hosts."""
    words = dict.fromkeys(_users(environment), USER)
    for host in (os.uname().nodename, *hosts):
        words |= _of_host(host)
    words |= dict.fromkeys(_homes(environment), HOME)
    words |= {path: f"${name}" for name, path in _paths(environment).items()}
    return PrivateWords(_usable(words))


def _usable(words: Mapping[str, str]) -> dict[str, str]:
    return {word: by for word, by in words.items() if word.casefold() not in _COMMON}


def _of_host(host: str) -> dict[str, str]:
    """Return the words of a host: its name, the name without the domain, and the domain."""
    first, _, domain = host.partition(".")
    return {host: HOST, first: HOST} | ({domain: DOMAIN} if "." in domain else {})


def _users(environment: Mapping[str, str]) -> set[str]:
    """Return the names of people on this machine, and of the owners of segments."""
    names = {environment.get(each, "") for each in ("USER", "LOGNAME", "SUDO_USER")}
    names |= {name for name, uid, _ in _accounts() if uid in _PEOPLE}
    for uid in {os.getuid(), os.geteuid()} | _owners():
        try:
            names.add(pwd.getpwuid(uid).pw_name)
        except KeyError:  # in a container, the uid may have no name
            continue
    return names


def _homes(environment: Mapping[str, str]) -> set[str]:
    found = {environment.get("HOME", "")} | {home for _, uid, home in _accounts() if uid in _PEOPLE}
    with contextlib.suppress(KeyError):
        found.add(pwd.getpwuid(os.geteuid()).pw_dir)
    found |= {os.path.realpath(each) for each in found if each.startswith("/")}
    return {each.rstrip("/") for each in found if each.startswith("/") and each.rstrip("/") not in _NO_HOMES | {""}}


def _paths(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the paths in variables of brickd, whose names take their place."""
    return {
        name: value.rstrip("/")
        for name, value in environment.items()
        if name.startswith(_VARIABLE) and name != _PREFIX and value.startswith("/") and len(value.rstrip("/")) > 1
    }


def _accounts() -> list[tuple[str, int, str]]:
    """Return the name, the user id and the home folder of each local account."""
    lines = (read(Path("/etc/passwd"), _PASSWD_BYTES_MAX) or "").splitlines()
    rows = [line.split(":") for line in lines]
    return [(row[0], int(row[2]), row[5]) for row in rows if len(row) == 7 and row[2].isdecimal()]


def _owners() -> set[int]:
    """Return the users who own files in the folder of segments."""
    found = set()
    try:
        with os.scandir(_reader.DIRECTORY) as entries:
            for number, entry in enumerate(entries):
                if number == _FILES_MAX:
                    break
                try:
                    found.add(entry.stat(follow_symlinks=False).st_uid)
                except OSError:  # the file was just removed
                    continue
    except OSError:  # the folder cannot be listed
        pass
    return found
