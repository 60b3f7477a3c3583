"""A redacted bundle contains no private word: each is planted, and then searched for in the whole archive."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from bundles import bundle, contents, documents
from conftest import ROOT
from faults import Start, needs_namespaces
from running import going, running
from verbs import started

from brickd.bundle.document_redaction import OMITTED, DocumentRedaction
from brickd.bundle.manifest import KEPT, REMOVED
from brickd.bundle.private_words import DOMAIN, HOME, HOST, USER, PrivateWords, of_this_machine

HOSTNAME, DOMAINNAME, NAME = "planted-host", "planted.example", "plantedperson"
KEY_FILE, SOURCE, STEP, HOMES = "/planted/key/file", "planted_source", "planted-request", f"/plantedhome/{NAME}"
WORKER = f"""
from array import array
brick.init(service="planted-service", worker=n)
brick.weights({{"planted_weight": array("f", [1.5, n])}})
brick.kernel("planted_kernel", 1, 1, source=brick.source("{SOURCE}: ret", path="{HOMES}/k.ptx"))
with brick.brick("planted_brick"): pass
for step in range(4):
    brick.checksum("gemm", array("f", [step + 0.4375, n]), input=array("f", [step, 9.25]), step="{STEP}-%d" % step)
pause()
"""


def planted(worker: Start) -> None:
    """Start workers whose numbers differ, and with private words in their environment."""
    for number in range(3):
        started(worker, f"n = {number // 2}\n{WORKER}".replace("worker=n", f"worker={number}"))


def whole(path: Path) -> bytes:
    """Return all members of a bundle, in one piece."""
    return b"\n".join(name.encode() + content for name, content in contents(path).items())


def values(document: Any, *keys: str) -> set[str]:
    """Return the values under these keys, anywhere in a document."""
    if isinstance(document, dict):
        mine = {json.dumps(document[key]) for key in keys if document.get(key) is not None}
        return mine.union(*(values(each, *keys) for each in document.values()))
    return set[str]().union(*(values(each, *keys) for each in document)) if isinstance(document, list) else set()


PRIVATE = {
    "HOME": HOMES, "USER": NAME, "LOGNAME": NAME, "BRICKD_KEY_FILE": KEY_FILE,
    "BRICKD_OTHER": "planted-value", "PLANTED_SECRET": "planted-secret",
}  # fmt: skip
UNDER = ("unshare", "--uts", "sh", "-c", f'hostname {HOSTNAME}.{DOMAINNAME} && exec "$@"', "sh")
SECRETS = [HOSTNAME, DOMAINNAME, NAME, "plantedhome", KEY_FILE, "planted-value", "planted-secret", SOURCE, STEP]
STAYS = ["planted-service", "planted_brick", "planted_weight"]


@pytest.mark.ci
@needs_namespaces
def test_no_planted_word_is_in_a_redacted_bundle(worker: Start, tmp_path: Path) -> None:
    planted(worker)
    path = tmp_path / NAME / "b.tar.gz"
    path.parent.mkdir()
    state = {"BRICKD_STATE_DIR": f"{tmp_path}/{NAME}/state", "BRICKD_RUNTIME_DIR": f"{tmp_path}/{NAME}/run"}
    arguments = ("-o", str(path), "--duration", "0.1")
    with going("bundle", *arguments, under=UNDER, **PRIVATE, **state) as process:
        _, err = process.communicate()
        assert process.returncode == 0, err
    inside = whole(path)
    assert [word for word in SECRETS if word.encode() in inside] == []
    assert [word for word in STAYS if word.encode() not in inside] == []
    assert {"recording.brick", "diff-planted-service.json", "doctor.json"} <= contents(path).keys()
    assert b"redacted" in inside
    names = {each["name"]: each["value"] for each in documents(path)["environment"]["variables"]}
    assert {*names} >= {"BRICKD_KEY_FILE", "BRICKD_OTHER"}
    assert {*names.values()} == {None}
    # The same words are found without redaction, so that this test searches for the right ones.
    with going("bundle", *arguments, "--force", "--no-redact", under=UNDER, **PRIVATE, **state) as process:
        process.communicate()
        assert process.returncode == 0
    inside = whole(path)
    found = [HOSTNAME, DOMAINNAME, NAME, KEY_FILE, "planted-value", SOURCE]
    assert [word for word in found if word.encode() not in inside] == []
    assert b"planted-secret" not in inside


@pytest.mark.ci
def test_no_number_about_a_tensor_is_in_a_redacted_bundle(worker: Start, tmp_path: Path) -> None:
    planted(worker)
    with running() as daemon:
        daemon.until("diverged")
        bundle(tmp_path / "all.tar.gz", "--no-redact", "--no-recording")
        bundle(tmp_path / "redacted.tar.gz", "--no-recording")
    every, redacted = documents(tmp_path / "all.tar.gz"), documents(tmp_path / "redacted.tar.gz")
    secret = values(every, "checksum", "checksum_against", "fnv1a", "step", "step_text", "mean", "l2", "max", "key")
    secret -= {"0.0", '"0"'}
    assert len(secret) > 12
    assert {f'"{STEP}-0"', "0.4375"} & secret
    inside = json.dumps(redacted)
    assert [word for word in secret if len(word) > 4 and word.strip('"') in inside] == []
    diff = redacted["diff-planted-service"]
    assert diff["verdict"] == "diverged"
    assert diff["outlier"] == every["diff-planted-service"]["outlier"] == "planted-service/2"
    assert diff["first"]["a"]["checksum"] != diff["first"]["b"]["checksum"]
    assert diff["first"]["a"]["step"] == diff["first"]["step"]


@pytest.mark.ci
def test_a_host_of_the_daemon_is_not_in_the_recording(worker: Start, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare, to be another host")
    planted(worker)
    with running(UNDER):
        bundle(tmp_path / "b.tar.gz", "--duration", "0.1")
    inside = contents(tmp_path / "b.tar.gz")["recording.brick"]
    assert HOSTNAME.encode() not in inside
    assert HOST.encode() in inside


def test_a_word_is_replaced_only_where_it_stands_alone() -> None:
    words = PrivateWords({"ann": USER, "/srv/x": "$BRICKD_STATE_DIR", "/srv": HOME})
    assert words.text("ann, annual, Ann_1, joann ann") == f"{USER}, annual, {USER}_1, joann {USER}"
    assert words.text("/srv/x/y /srv/xy /srv") == f"$BRICKD_STATE_DIR/y {HOME}/xy {HOME}"
    assert words.text("see /home/bob/x and /Users/eve") == f"see {HOME}/x and {HOME}"
    assert PrivateWords({}).text("/home/bob ann") == f"{HOME} ann"


def test_hosts_in_addresses_are_replaced_unless_they_are_this_machine() -> None:
    text = PrivateWords({"ann": USER}).text
    assert text("http://alerts.corp.example:9, 'HTTPS://hooks.example/x'") == f"http://{HOST}:9, 'HTTPS://{HOST}/x'"
    assert text("https://bob:pass@h.example:9/x http://b@[::2]/") == f"https://{HOST}:9/x http://{HOST}/"
    assert text("https://[2001:db8::1]:9/x http://ann/") == f"https://{HOST}:9/x http://{USER}/"
    kept = "http://127.0.0.1:9230/ http://localhost:1 http://[::1]:9 hf://org/model unix:///run x.example"
    assert text(kept) == kept
    assert text("http://127.0.0.11 http://localhosts") == f"http://{HOST} http://{HOST}"


def test_keys_of_a_schema_stay_and_names_in_keys_do_not() -> None:
    words = PrivateWords({"worker": USER})
    assert words.value({"worker": "worker/0", "outliers": {"worker/0": 1}}) == {
        "worker": f"{USER}/0",
        "outliers": {f"{USER}/0": 1},
    }
    assert words.value([("worker", 1, None, True)]) == [[USER, 1, None, True]]


def test_the_words_of_this_machine_are_the_host_the_users_and_their_homes() -> None:
    words = of_this_machine(
        {"USER": NAME, "HOME": f"/{NAME}-home", "BRICKD_SOCKET": "/run/planted/s"}, ["h1.a.example"]
    )
    text = f"{NAME} on h1.a.example h1 x.a.example: /{NAME}-home/x, /run/planted/s"
    assert words.text(text) == f"{USER} on {HOST} {HOST} x.{DOMAIN}: {HOME}/x, $BRICKD_SOCKET"
    assert words.text("root runs brickd on localhost: /, /tmp") == "root runs brickd on localhost: /, /tmp"
    assert of_this_machine({"HOME": "/tmp", "BRICKD_SHM_PREFIX": "/p-"}).text("/tmp/a /p- /p-1") == "/tmp/a /p- /p-1"
    assert os.uname().nodename.casefold() in ("localhost", words.and_host("").text(os.uname().nodename)) or (
        words.text(os.uname().nodename) == HOST
    )


def test_equal_checksums_stay_equal_and_have_other_values() -> None:
    one, other = DocumentRedaction(b"1" * 32), DocumentRedaction(b"2" * 32)
    document = {"a": {"checksum": "00ff00ff00ff00ff"}, "b": {"checksum": "00ff00ff00ff00ff", "step": 7, "mean": 1.5}}
    found = one.document(document)
    assert found["a"]["checksum"] == found["b"]["checksum"] != "00ff00ff00ff00ff"
    assert (found["b"]["mean"], len(found["b"]["step"])) == (None, 16)
    assert one.document({"sketch": [1.5], "position": {"row": 3}}) == {"sketch": None, "position": None}
    assert other.document(document)["a"] != found["a"]
    assert len(one.document({"step": "17"})["step"]) == 16
    assert one.document({"not_comparable": {"key": 3, "alone": 1}}) == {"not_comparable": {"key": 3, "alone": 1}}
    assert one.document({"text": "00ff00ff00ff00ff"})["text"] == found["a"]["checksum"]


def test_sentences_about_tensors_are_omitted_and_others_stay() -> None:
    redact = DocumentRedaction(b"1" * 32).document
    assert redact({"headlines": ["step 3"], "diagnosis": "x"}) == {"headlines": [OMITTED], "diagnosis": OMITTED}
    assert redact({"headlines": ["slow"], "stragglers": []})["headlines"] == ["slow"]
    for kind in ("weights", "numbers", "nan"):
        assert redact({"kind": kind, "text": "1.5", "command": "c"}) == {"kind": kind, "text": OMITTED, "command": "c"}
    assert redact({"kind": "lost", "text": "3 lost"})["text"] == "3 lost"
    assert redact({"evidence": "weights", "text": "1.5"})["text"] == OMITTED
    assert redact({"kind": "worker_died", "number": 1, "text": "x", "command": "c"})["text"] == "x"
    event = redact({"kind": "diverged", "number": 1, "text": "x", "command": "c"})
    assert (event["text"], event["command"]) == (OMITTED, None)
    assert redact("brickd diff a --step 'my req' --all") == "brickd diff a --step redacted --all"


def test_the_promises_of_the_manifest_are_in_the_security_page() -> None:
    page = " ".join((ROOT / "docs" / "security.md").read_text().split())
    assert [each for each in (*REMOVED, *KEPT) if each not in page] == []
