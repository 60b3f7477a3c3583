"""Two things: tensors that checksums never read, and the key. Without the key, checksums reveal nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import sparse_files
from checksums import NUMBERS, UNSEEN, lost, places, recorded
from conftest import SHM, reading, readings
from faults import Start
from recorded import events

# ---- tensors that are not read
# ----------------------------------------------------------------------------------------------------

SENSITIVE = ("embedding", "LM_Head", "vocab_logits_gather", "sampling", "tok_token_ids")


@pytest.mark.parametrize(
    ("given", "off"), [({}, True), ({"BRICKD_SENSITIVE": "0"}, True), ({"BRICKD_SENSITIVE": "1"}, False)]
)
def test_kernels_that_reveal_customer_text_are_off_unless_configured(
    worker: Start, prefix: str, given: dict[str, str], off: bool
) -> None:
    names = (*SENSITIVE, "rope_neox")
    tensor = "Watched()" if off else "y"
    source = f"""
for name in {SENSITIVE}:
    brick.checksum(name, {tensor}, input={tensor})
    brick.checksum(name, y, input=brick.take(name, {tensor}), layer=2)
brick.checksum("rope_neox", y)
"""
    got, found, known, _ = recorded(worker, prefix, UNSEEN + source, **given)
    assert {(site[0], site[2]) for site in known if site} == {(n, off and n != "rope_neox") for n in names}
    assert len(found) == 1 + 10 * (not off)
    assert (lost(got), got.process["tensors_refused"]) == (0, 0)
    ((_, lane, _),) = got.lanes
    assert lane["event_attempts"] == len(found)


TURNING = ("rotary_embedding", "apply_rotary_pos_embedding", "layers.3.RotaryEmbedding.forward", "rope_embedding",
           "yarn.RoPE_Embedding", "embedding_rope")  # fmt: skip
NOT_TURNING = ("rotary_lm.embedding", "europe_embedding", "zrope_embedding",
               "property_embeddings", "rope_token_ids", "rope.embedding",
               "rotary_embedding.embedding", "rotary_embedding/logits", "a:embedding:rope")  # fmt: skip


TELLING = ("LMHead", "lm-head", "lmhead", "logit", "embed_tokens", "wte", "unembed", "input_ids", "Sampler",
           "top.sample", "multinomial", "wpe_wte")  # fmt: skip
NOT_TELLING = ("downsample", "resampled", "swte", "emb", "mlp.up")


def test_kernels_that_reveal_words_are_off_under_any_usual_name(worker: Start, prefix: str) -> None:
    source = f"for name in {TELLING + NOT_TELLING}: brick.checksum(name, y if name in {NOT_TELLING} else Watched())"
    _, found, known, _ = recorded(worker, prefix, UNSEEN + source)
    assert [site[0] for site in known if site and site[2]] == list(TELLING)
    assert len(found) == len(NOT_TELLING)


def test_rotary_embeddings_reveal_nothing_and_are_on(worker: Start, prefix: str) -> None:
    source = f"for name in {TURNING + NOT_TURNING}: brick.checksum(name, y if name in {TURNING} else Watched())"
    _, found, known, _ = recorded(worker, prefix, UNSEEN + source)
    assert [site[0] for site in known if site and not site[2]] == list(TURNING)
    assert [site[0] for site in known if site and site[2]] == list(NOT_TURNING)
    assert len(found) == len(TURNING)


def test_text_beyond_the_limit_of_a_name_does_not_make_it_rotary(worker: Start, prefix: str) -> None:
    names = ["embedding." + "x" * 120 + ".rope", "x" * 120 + ".rope.embedding", "embedding" + "x" * 120 + "_rope"]
    _, found, known, _ = recorded(worker, prefix, UNSEEN + f"for name in {names}: brick.checksum(name, Watched())")
    assert [site[2] for site in known if site] == [True] * 3
    assert found == []


def test_a_shortened_name_keeps_the_word_that_turned_it_off(worker: Start, prefix: str) -> None:
    names = ["block." * 19 + "lm_head", "é" * 200 + ".Logits.gather", "a" * 109 + "token" + "b" * 20, "x" * 200]
    source = f"for name in {names}: brick.checksum(name, Watched() if 'xxx' not in name else y)"
    got, found, known, _ = recorded(worker, prefix, UNSEEN + source)
    cut = [site for site in known if site]
    assert [site[2] for site in cut] == [True, True, True, False]
    assert [site[0][-16:-8] for site in cut] == ["lm_head~", "é~logit~", "a~token~", "xxxxxxx~"]
    assert all(len(site[0].encode()) <= 120 for site in cut)
    assert (len(found), got.process["names_cut"]) == (1, 4)


def test_a_name_cut_inside_a_sensitive_word_keeps_the_whole_word(worker: Start, prefix: str) -> None:
    words = ("logit", "lm_head", "lm-head", "lmhead", "token", "input_ids", "multinomial", "sampl", "wte", "embed")
    cuts = [(word, kept) for word in words for kept in range(len(word) + 1)]
    source = f"""
for word, kept in {cuts}:
    brick.checksum("x" * (110 - kept) + "_" + word + "_" + "y" * 20, Watched())
"""
    _, found, known, _ = recorded(worker, prefix, UNSEEN + source)
    sites = [site for site in known if site]
    reported = [(site[0][-9 - len(word) : -9], site[2]) for site, (word, _) in zip(sites, cuts, strict=True)]
    assert (reported, found) == ([(word, True) for word, _ in cuts], [])


def test_while_recording_is_off_no_tensor_is_read(worker: Start, prefix: str) -> None:
    _, found, known, _ = recorded(
        worker,
        prefix,
        UNSEEN
        + """
brick.disable()
brick.checksum("k", Watched(), input=brick.take("k", Watched()))
brick.enable()
brick.checksum("k", y)
""",
    )
    assert places(known, found) == [("k", -1, 0, 0)]


def test_a_worker_that_is_off_from_the_start_makes_no_key(worker: Start, prefix: str) -> None:
    process = worker(UNSEEN + "brick.checksum('k', Watched(), input=brick.take('k', Watched()))\npause()", BRICKD="0")
    process.paused()
    assert readings(prefix) == []
    assert not (Path(os.environ["BRICKD_STATE_DIR"]) / "key").exists()
    process.go()
    assert process.end() == 0


# ---- the key -----------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_the_key_is_made_once_and_only_its_user_can_read_it(worker: Start, prefix: str) -> None:
    processes = [worker(NUMBERS + "pause(); brick.checksum('k', y); pause()") for _ in range(4)]
    for each in processes:
        each.paused()
    for each in processes:
        each.go()
    for each in processes:
        each.paused()
    file = Path(os.environ["BRICKD_STATE_DIR"]) / "key"
    assert os.listdir(file.parent) == ["key"]
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    text = file.read_text().strip()
    got = readings(prefix)
    assert [each.process["key"] for each in got] == [int(text[32:], 16)] * 4
    assert len({events(each)[0]["tensors"][0]["checksum"] for each in got}) == 1
    for one in got:
        parts = [part for _, part in sparse_files.parts(SHM / one.file)]
        halves = [int(half, 16).to_bytes(8, "little") for half in (text[:16], text[16:32])]
        assert not [half for half in halves for part in parts if half in part]
    for each in processes:
        each.go()
        assert (each.end(), each.stderr) == (0, "")


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("0123456789abcdef" * 3, 0o640, "has mode 0640, expected 0600: chmod 600"),
        ("0123456789abcdef" * 3, 0o602, "has mode 0602, expected 0600: chmod 600"),
        ("0123456789abcdef", 0o600, "has 16 hexadecimal digits, expected 48"),
        ("0123456789abcdeg" * 3, 0o600, "has 15 hexadecimal digits and other content, expected 48"),
        ("0123456789abcdef" * 3 + "0\n", 0o600, "has more than 48 hexadecimal digits, expected 48"),
        ("0123456789abcdef" * 3 + "\n\n", 0o600, "has 48 hexadecimal digits and other content, expected 48"),
        ("0" * 32 + "1" * 16, 0o600, "has a key of zeros"),
        ("1" * 32 + "0" * 16, 0o600, "has a key of zeros"),
        *(("0123456789abcdef" * 2 + end, 0o600, "has 32 hexadecimal digits, expected 48") for end in ("", "\n")),
        (None, 0o700, "is not a regular file"),
    ],
)
def test_an_invalid_key_file_is_refused_and_reported_once(
    worker: Start, prefix: str, tmp_path: Path, content: str | None, mode: int, why: str
) -> None:
    file = tmp_path / "secret"
    file.mkdir() if content is None else file.write_text(content)
    file.chmod(mode)
    process = worker(
        NUMBERS
        + "brick.checksum('k', y); brick.checksum('k', y); report(fingerprint_fields(brick.fingerprint(y))); pause()",
        BRICKD_KEY_FILE=str(file),
    )
    without = process.next_report()
    process.paused()
    got = reading(prefix)
    assert {f"{each['tensors'][0]['checksum']:016x}" for each in events(got)} == {without[0]}
    assert got.process["key"] == 0
    process.go()
    assert process.end() == 0
    assert process.stderr.count("\n") == 1
    assert f"{file} {why}" in process.stderr
    assert (": remove it, and a worker creates a new one" in process.stderr) == ("has 32" in why)


def test_a_temporarily_unavailable_key_delays_checksums_until_all_have_it(worker: Start, prefix: str) -> None:
    got, found, _, reported = recorded(
        worker,
        prefix,
        """
import resource
brick.init()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
for _ in range(4): brick.checksum("k", y)
taken = brick.take("k", y)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
for _ in range(16): brick.checksum("k", y)
brick.checksum("k", y, input=taken)
reported = fingerprint_fields(brick.fingerprint(y, key=key()))[0]
""",
    )
    name = int((Path(os.environ["BRICKD_STATE_DIR"]) / "key").read_text()[32:], 16)
    # The agent looks for the key at the first checksum. After that, it looks again at the 1st, 2nd, 4th and 8th of the
    # following checksums.
    assert [each["position"] for each in found] == list(range(7, 21))
    assert {f"{each['tensors'][0]['checksum']:016x}" for each in found} == {reported}
    assert found[-1]["tensors"][1]["dtype"] == 0
    assert (got.process["key"], lost(got), got.process["tensors_refused"]) == (name, 7, 0)


def test_the_reason_why_checksums_wait_for_a_key_is_reported_once(worker: Start) -> None:
    process = worker(
        NUMBERS
        + """
import resource
brick.init()
resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(9): brick.checksum("k", y)
pause()
"""
    )
    process.paused()
    process.go()
    assert process.end() == 0
    assert process.stderr.count("\n") == 1
    assert process.stderr.startswith("brickd: no checksums are made until the service's key can be read: the key file ")
    assert "Too many open files" in process.stderr


def test_a_given_key_file_is_used(worker: Start, prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("000000000000000300000000000000050000000000000009\n")
    file.chmod(0o400)
    got, found, _, reported = recorded(
        worker,
        prefix,
        "brick.checksum('k', y); reported = fingerprint_fields(brick.fingerprint(y, key=3 << 64 | 5))",
        BRICKD_KEY_FILE=str(file),
    )
    assert (f"{found[0]['tensors'][0]['checksum']:016x}", got.process["key"]) == (reported[0], 9)
