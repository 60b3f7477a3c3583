"""The file of the token: private under any umask, never one of another user, never followed, the same for everybody."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from brickd.errors import BrickdError
from brickd.web.token import create_token, read_token


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "web-token"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_a_new_token_is_readable_only_by_its_user_under_any_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        token = create_token(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == token + b"\n"
    assert os.listdir(path.parent) == [path.name]


def test_a_token_is_random_and_fits_into_a_url(tmp_path: Path) -> None:
    tokens = {create_token(tmp_path / str(number)) for number in range(20)}
    assert len(tokens) == 20
    assert all(re.fullmatch(rb"[A-Za-z0-9_-]{43}", token) for token in tokens)


def test_an_existing_token_is_used_again(path: Path) -> None:
    token = create_token(path)
    assert (create_token(path), read_token(path)) == (token, token)


def test_without_a_file_there_is_no_token(path: Path) -> None:
    assert read_token(path) is None


@pytest.mark.parametrize("content", [b"", b"x", b"a" * 42, b"a" * 44, b"a" * 42 + b"\xff", b"a" * 43 + b"\n\n", b"\n"])
def test_a_file_without_a_token_is_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    assert read_token(path) is None
    token = create_token(path)
    assert read_token(path) == token
    assert token not in content


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610, 0o601])
def test_a_file_that_others_may_read_is_refused_and_stays(path: Path, mode: int) -> None:
    token = create_token(path)
    path.chmod(mode)
    for use in (create_token, read_token):
        with pytest.raises(BrickdError, match=f"{stat.filemode(mode | stat.S_IFREG)} of user") as refused:
            use(path)
        assert f"remove it: rm {path}" in str(refused.value)
        assert token.decode() not in str(refused.value)
    assert path.read_bytes() == token + b"\n"


def test_a_link_is_refused_and_its_target_stays(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    create_token(target)
    before = target.read_bytes()
    path.symlink_to(target)
    for use in (create_token, read_token):
        with pytest.raises(BrickdError, match="cannot be opened"):
            use(path)
    assert path.is_symlink()
    assert target.read_bytes() == before
    target.unlink()
    with pytest.raises(BrickdError, match="cannot be opened"):
        create_token(path)
    assert not target.exists(), "the target of a dangling link is not created"


def test_a_draft_that_is_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    path.with_name("web-token.new").symlink_to(target)
    create_token(path)
    assert not target.exists()
    assert not path.is_symlink()


def test_a_pipe_or_a_directory_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path, 0o600)
    with pytest.raises(BrickdError, match="expected a file of user"):
        create_token(path)
    path.unlink()
    path.mkdir(mode=0o700)
    with pytest.raises(BrickdError, match="expected a file of user"):
        create_token(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a file of another user")
def test_a_file_of_another_user_is_refused_and_stays(path: Path) -> None:
    token = create_token(path)
    os.chown(path, 12345, -1)
    for use in (create_token, read_token):
        with pytest.raises(BrickdError, match="of user 12345"):
            use(path)
    assert path.read_bytes() == token + b"\n"


def test_a_directory_that_is_missing_is_named(path: Path) -> None:
    missing = path.parent / "missing" / "web-token"
    with pytest.raises(BrickdError, match=r"missing/web-token: cannot be created: No such file"):
        create_token(missing)


CREATE = (
    "import sys; from pathlib import Path; from brickd.web.token import create_token as c; print(c(Path(sys.argv[1])))"
)


@pytest.mark.ci
def test_processes_that_start_at_the_same_time_get_the_same_token(path: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-P", "-c", CREATE, str(path)], stdout=subprocess.PIPE) for _ in range(4)
    ]
    found = {process.communicate(timeout=60)[0] for process in started}
    assert found == {f"{path.read_bytes().strip()!r}\n".encode()}
