"""`brickd bundle --check`: every archive that is damaged or hostile is refused, without writing anything to a disk."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tarfile
import tracemalloc
import zlib
from pathlib import Path

import pytest
from bundles import archived, forged, head, manifest, valid
from verbs import brickd, document

from brickd.bundle import archive_reader
from brickd.bundle.archive_check import check, in_memory
from brickd.bundle.archive_reader import ArchiveError
from brickd.bundle.manifest import DOCUMENT_BYTES_MAX, MEMBERS_MAX, RECORDING_BYTES_MAX, TOTAL_BYTES_MAX

MEMBERS = {"README.txt": b"look\n", "status.json": b"{}\n"}


def faults(path: Path) -> list[str]:
    return check(str(path)).faults


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "b.tar.gz"


def test_a_valid_archive_has_no_fault(file: Path) -> None:
    found = check(str(archived(file, valid(MEMBERS))))
    assert (found.faults, [*found.members]) == ([], ["manifest.json", "README.txt", "status.json"])
    assert found.bytes == file.stat().st_size


def test_a_changed_member_is_a_fault(file: Path) -> None:
    archived(file, {"manifest.json": manifest(MEMBERS), **MEMBERS, "status.json": b"[]\n"})
    assert [each.partition(":")[0] for each in faults(file)] == ["status.json"] * 2  # no object, and another checksum
    archived(file, {"manifest.json": manifest(MEMBERS), **MEMBERS, "README.txt": b"hook\n"})
    (fault,) = faults(file)
    assert fault.startswith("README.txt: has the SHA-256 ")
    archived(file, {"manifest.json": manifest(MEMBERS), **MEMBERS, "README.txt": b"look"})
    assert faults(file) == ["README.txt: has 4 bytes, expected 5"]


def test_a_missing_and_an_additional_member_are_faults(file: Path) -> None:
    archived(file, {"manifest.json": manifest(MEMBERS), "README.txt": MEMBERS["README.txt"], "more.json": b"{}"})
    assert faults(file) == ["more.json: is not in the manifest", "status.json: is missing, but is in the manifest"]
    assert faults(archived(file, MEMBERS)) == ["there is no manifest.json"]


def test_an_invalid_manifest_is_a_fault(file: Path) -> None:
    for invalid in (
        b"{}",
        b"[" * 100_000,
        manifest(MEMBERS, schema_version=2),
        manifest(MEMBERS, members=[{"name": "../x"}]),
        manifest(MEMBERS, missing=[{}]),
        manifest(MEMBERS, host=[]),
        manifest(MEMBERS, redacted="yes"),
    ):
        (fault, *_) = faults(archived(file, {"manifest.json": invalid, **MEMBERS}))
        assert fault.startswith("manifest.json: "), invalid


@pytest.mark.parametrize(
    "name", ["../x.json", "/etc/x.json", "a/b.json", ".x.json", "x\n.json", "", "x" * 97, "ü.json"]
)
def test_a_name_that_is_not_plain_is_refused(file: Path, name: str) -> None:
    (fault,) = [each for each in faults(forged(file, [(head(name), b"")])) if "manifest" not in each]
    assert "expected a plain name without folders" in fault


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE,
        tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE,
        tarfile.XGLTYPE,
    ],
)  # fmt: skip
def test_only_regular_members_are_accepted(file: Path, kind: bytes) -> None:
    assert "expected only regular files" in faults(forged(file, [(head("x.json", 0, kind), b"")]))[0]


def test_extended_headers_of_pax_and_gnu_are_refused(file: Path) -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        assert "expected only regular files" in faults(forged(file, [(head("x" * 300), b"")], form=form))[0]


def test_two_members_with_one_name_are_refused(file: Path) -> None:
    assert (
        faults(forged(file, [(head("x.json", 2), b"{}")] * 2))[0] == "the archive has two members with the name x.json"
    )


def test_no_more_members_than_the_limit_are_read(file: Path) -> None:
    forged(file, [(head(f"m{number}.txt"), b"") for number in range(MEMBERS_MAX + 1)])
    assert f"the archive has more than {MEMBERS_MAX} members" in faults(file)


@pytest.mark.ci
def test_as_many_members_as_the_limit_are_read(file: Path) -> None:
    assert faults(archived(file, valid({f"m{number}.json": b"{}" for number in range(MEMBERS_MAX - 1)}))) == []


@pytest.mark.ci
def test_an_archive_of_100_000_members_is_refused_soon(file: Path) -> None:
    block = head("x.json").tobuf(tarfile.USTAR_FORMAT)
    file.write_bytes(gzip.compress(b"".join(block.replace(b"x.json", b"%06d" % n) for n in range(100_000)), 1))
    assert "checksum" in faults(file)[0]
    heads = b"".join(head(f"{n:06d}.txt").tobuf(tarfile.USTAR_FORMAT) for n in range(1_000)) * 100
    file.write_bytes(gzip.compress(heads, 1))
    assert f"the archive has more than {MEMBERS_MAX} members" in faults(file)


@pytest.mark.parametrize(("name", "most"), [("x.json", DOCUMENT_BYTES_MAX), ("x.brick", RECORDING_BYTES_MAX)])
def test_a_member_over_its_limit_is_not_read(file: Path, name: str, most: int) -> None:
    block = head(name, most + 1).tobuf(tarfile.USTAR_FORMAT)
    file.write_bytes(gzip.compress(block))
    assert faults(file)[0] == f"the archive has the member {name} of {most + 1:,} bytes, expected at most {most:,}"
    file.write_bytes(gzip.compress(head(name, most).tobuf(tarfile.USTAR_FORMAT)))
    assert faults(file)[0] == f"the archive is cut within the member {name}"


def test_a_negative_length_is_refused(file: Path) -> None:
    block = head("x.json", -1).tobuf(tarfile.GNU_FORMAT)  # only this form can write a negative number
    file.write_bytes(gzip.compress(block))
    assert "the member x.json of -1 bytes" in faults(file)[0]


def _bomb(path: Path, length: int) -> None:
    """Write a gzip file of zeros, after the headers of a valid member."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    with path.open("wb") as file:
        file.write(packer.compress(head("x.json", 2).tobuf(tarfile.USTAR_FORMAT) + b"{}".ljust(512, b"\0")))
        for _ in range(length >> 20):
            file.write(packer.compress(zeros))
        file.write(packer.flush())


def refused(path: Path, most: int) -> str:
    """Return why an archive is refused with a limit of `most` bytes."""
    with archive_reader.opened(str(path)) as file, pytest.raises(ArchiveError) as error:
        for _ in archive_reader.members(file, most):
            pass
    return str(error.value)


def test_a_bomb_is_refused_at_the_limit_and_takes_no_memory(file: Path) -> None:
    _bomb(file, 12 << 20)
    assert file.stat().st_size < 1 << 16
    tracemalloc.start()
    try:
        assert refused(file, 10 << 20) == "has more than 10M after decompression, the limit of a bundle"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    with archive_reader.opened(str(file)) as opened:
        assert {name: [*pieces] for name, pieces in archive_reader.members(opened, 13 << 20)} == {"x.json": [b"{}"]}


def test_a_recording_of_zeros_takes_no_memory(file: Path) -> None:
    zeros = bytes(1 << 16)
    tracemalloc.start()
    try:
        with contextlib.closing(in_memory("x.brick", (zeros for _ in range(64)))) as recording:
            assert (recording.size, recording.data(0)) == (64 << 16, 64 << 16)
            assert recording.read(5, 3) == bytes(3)
        assert tracemalloc.get_traced_memory()[1] < 1 << 17
    finally:
        tracemalloc.stop()


def test_a_recording_in_memory_has_the_bytes_of_its_pieces() -> None:
    pieces = [b"ab", bytes(4), b"\0c\0", bytes(3)]
    with contextlib.closing(in_memory("x.brick", pieces)) as recording:
        assert recording.read(0, 99) == b"".join(pieces)


def test_a_member_that_is_not_read_is_skipped(file: Path) -> None:
    forged(file, [(head("a.json", 700), bytes(700)), (head("b.json", 2), b"{}"), (head("c.json", 512), bytes(512))])
    with archive_reader.opened(str(file)) as opened:
        read = {name: next(pieces) for name, pieces in archive_reader.members(opened) if name == "b.json"}
    assert read == {"b.json": b"{}"}


def test_a_manifest_that_lists_a_member_twice_is_a_fault(file: Path) -> None:
    listed = json.loads(manifest(MEMBERS))["members"]
    archived(file, {"manifest.json": manifest(MEMBERS, members=[*listed, listed[0]]), **MEMBERS})
    (fault,) = faults(file)
    assert (fault.startswith("manifest.json: "), "expected each member once" in fault) == (True, True)


@pytest.mark.nightly
def test_a_bomb_is_refused_at_the_limit_of_a_bundle(file: Path) -> None:
    _bomb(file, TOTAL_BYTES_MAX + (1 << 20))
    assert faults(file)[0] == "the archive has more than 1.0G after decompression, the limit of a bundle"


def test_a_file_over_the_limit_is_not_read(file: Path) -> None:
    archived(file, valid(MEMBERS))
    length = file.stat().st_size
    assert refused(file, length - 1) == f"has {length}B, expected at most {length - 1}B"


@pytest.mark.ci
def test_a_member_of_zeros_that_claims_the_limit_is_read_but_not_kept(file: Path) -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    with file.open("wb") as out:
        out.write(packer.compress(head("x.json", DOCUMENT_BYTES_MAX).tobuf(tarfile.USTAR_FORMAT)))
        for _ in range(DOCUMENT_BYTES_MAX >> 20):
            out.write(packer.compress(bytes(1 << 20)))
        out.write(packer.compress(bytes(1024)) + packer.flush())
    assert faults(file)[0].startswith("x.json: ")


def test_json_with_too_many_containers_is_a_fault(file: Path) -> None:
    found = faults(archived(file, valid({"x.json": b"[" * (1 << 22) + b"{"})))
    assert [each for each in found if each.startswith("x.json: ") and "lists and objects" in each]
    deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    assert faults(archived(file, valid({"x.json": deep}))) == ["x.json: is nested too deeply"]
    (fault,) = faults(archived(file, valid({"x.json": b'{"a":NaN}'})))
    assert "expected a number, found NaN" in fault


def test_a_file_of_another_kind_is_a_fault(file: Path) -> None:
    (fault,) = faults(archived(file, valid({"x.sh": b"rm"})))
    assert fault == "x.sh: is not a member of a bundle, expected README.txt, *.json or *.brick"
    (fault,) = faults(archived(file, valid({"x.brick": b"no recording"})))
    assert fault.startswith("x.brick: ")
    assert [each for each in faults(archived(file, valid({"README.txt": b"\xff"}))) if "utf-8" in each]


def test_a_truncated_archive_is_refused_at_every_length(file: Path) -> None:
    whole = archived(file, valid(MEMBERS)).read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert [each for each in faults(file) if each.startswith("the archive is ")], length
    plain = gzip.decompress(whole)
    for length in (512, 1024, len(plain) - 10240 + 700):
        file.write_bytes(gzip.compress(plain[:length]))
        assert [each for each in faults(file) if each.startswith("the archive is cut")], length


def test_data_after_the_end_is_refused(file: Path) -> None:
    whole = archived(file, valid(MEMBERS)).read_bytes()
    for more in (b"x", gzip.compress(b"more")):
        file.write_bytes(whole + more)
        assert faults(file) == ["the archive has data after its end"]
    plain = gzip.decompress(whole)
    file.write_bytes(gzip.compress(plain + b"x"))
    assert faults(file) == ["the archive has data after its last member"]


def _flipped(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def test_each_damaged_byte_is_a_fault(file: Path) -> None:
    whole = archived(file, valid(MEMBERS)).read_bytes()
    plain = gzip.decompress(whole)
    for at in range(10, len(whole), 29):
        file.write_bytes(_flipped(whole, at))
        with contextlib.suppress(OSError, zlib.error, EOFError):
            if gzip.decompress(file.read_bytes()) == plain:  # zeros may be compressed in several ways
                continue
        assert faults(file), at


def test_nothing_is_written_to_a_disk(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archived(file, valid({**MEMBERS, "x.brick": b"brickrec"}))
    before = sorted(os.listdir(tmp_path))
    assert faults(file)
    assert sorted(os.listdir(tmp_path)) == before


def test_the_exit_code_says_whether_the_archive_is_valid(file: Path, tmp_path: Path) -> None:
    archived(file, valid(MEMBERS))
    assert document("bundle", "--check", str(file))["valid"]
    good = brickd("bundle", "--check", str(file))
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith(f"{file}: ")
    archived(file, MEMBERS)
    bad = brickd("bundle", "--check", str(file))
    assert bad.returncode == 1
    assert "\nfault: there is no manifest.json\n" in bad.stdout
    missing = brickd("bundle", "--check", str(tmp_path / "none"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert brickd("bundle", "--check", str(tmp_path)).returncode == 2
    os.mkfifo(tmp_path / "fifo")
    assert brickd("bundle", "--check", str(tmp_path / "fifo")).returncode == 2


def test_words_of_a_hostile_archive_are_escaped(file: Path) -> None:
    hostile = "\x1b]0;owned\x07\n"
    archived(file, {"manifest.json": manifest(MEMBERS, made=hostile, missing=[{"name": hostile, "reason": hostile}]),
                    **MEMBERS})  # fmt: skip
    shown = brickd("bundle", "--check", str(file))
    assert shown.returncode == 0
    assert all(line.isprintable() for line in shown.stdout.splitlines())
    forged(file, [(head(hostile), b"")])
    assert all(line.isprintable() for line in brickd("bundle", "--check", str(file)).stdout.splitlines())


def test_a_long_text_of_a_hostile_manifest_is_cut_on_the_screen(file: Path) -> None:
    archived(file, {"manifest.json": manifest(MEMBERS, missing=[{"name": "x", "reason": "y" * 5000}]), **MEMBERS})
    lines = brickd("bundle", "--check", str(file)).stdout.splitlines()
    assert lines[-1] == f"missing: x: {'y' * 987}…"
    assert document("bundle", "--check", str(file))["manifest"]["missing"] == [{"name": "x", "reason": "y" * 5000}]


def test_check_takes_no_other_option() -> None:
    for other in (("-o", "x"), ("--force",), ("--no-redact",), ("x.brick",), ("--duration", "3s")):
        refused = brickd("bundle", "--check", "f", *other)
        assert refused.returncode == 2
        assert "--check contradicts" in refused.stderr
