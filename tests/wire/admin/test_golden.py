"""The admin over directories and metadata of the real BookKeeper, against what it said of them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from bkstore import Availability, Bookie
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.formats.metadata import serialized
from bkstore.wire.admin import AdminServer
from tests.golden.data import expand_runs, golden_documents, golden_names
from tests.wire.admin.asking import ask

pytest.importorskip("aiohttp")

JOURNALS = golden_names("journal")
CLUSTERS = golden_names("cluster")
_ABSENT = [pytest.param("", marks=pytest.mark.skip("no golden data"), id="none")]


def payload(document: Any, ledger: int, entry: int) -> str:
    """Return a payload by the rule of the golden data, as ASCII text."""
    size = 20 + (7 * entry + ledger) % 61
    if ledger == 2077:
        size = 60_000
    base = 31 * ledger + 17 * entry + document["payload_seed"]
    data = bytes((base + 7 * at) % 256 for at in range(size))
    return data.decode("ascii", "replace")


@pytest.mark.parametrize("name", JOURNALS or _ABSENT)
def test_a_real_bookies_directory(name: str, unpack: Any, tmp_path: Path) -> None:
    """A crashed real bookie's directory is served after its replay as that bookie served it."""
    source, document = unpack(name)
    root = tmp_path / "copy"
    shutil.copytree(source / document["tree"], root)
    wanted = [one for one in document["replay"]["ledgers"] if one["exists"]]
    with (
        Bookie.open(root, document["storage"]) as bookie,
        AdminServer(bookie, compat="bookkeeper") as admin,
    ):
        listed = ask(admin, "/api/v1/ledger/list").json

        assert {str(one["ledger"]) for one in wanted} <= set(listed)
        for one in wanted:
            ledger, entries = one["ledger"], expand_runs(one["entries"])
            held = ask(admin, "/api/v1/ledger/availability", ledger_id=ledger).json
            shown = ask(admin, "/api/v1/ledger/read", ledger_id=ledger).json
            here = Availability.from_bytes(bytes.fromhex(held["bytes"]))
            state = ask(admin, "/api/v1/ledger/metadata", ledger_id=ledger).json[str(ledger)]

            assert entries == here.entries().tolist()
            assert {str(entry): payload(document, ledger, entry) for entry in entries} == shown
            assert (one["fenced"], len(entries)) == (state["fenced"], state["entries"])
        marks = ask(admin, "/api/v1/bookie/last_log_mark").json
        files = ask(admin, "/api/v1/bookie/list_disk_file").json
        on_disk = [
            struct.unpack(">qq", path.read_bytes()) for path in sorted(root.rglob("lastMark*"))
        ]
        journals = {path.name for path in root.rglob("*.txn")}
        logs = {path.name for path in root.rglob("*.log")}

    assert {
        f"LastLogMark: Journal Id - {number}({number:x}.txn)": f"Pos - {position}"
        for number, position in on_disk
    } == marks
    assert journals == set(files["journal files"].split("\t")) - {""}
    assert logs == set(files["entrylog files"].split("\t")) - {""}


@pytest.mark.parametrize("name", CLUSTERS or _ABSENT)
def test_metadata_of_a_real_cluster(name: str, tmp_path: Path) -> None:
    """Metadata that the real client wrote is listed with what the real client says of it."""
    ledgers = golden_documents()[name]["clean"]["state"]["ledgers"]
    store = MemoryStore()
    for one in ledgers:
        store.create(serialized.decode(bytes.fromhex(one["metadata_hex"]), one["ledger"]))
    query = "/api/v1/ledger/list?print_metadata=true"
    with (
        Bookie.open(tmp_path, "sorted") as bookie,
        AdminServer(bookie, metadata=store, compat="bookkeeper") as admin,
    ):
        texts = ask(admin, query).json
        shown = ask(admin, f"{query}&decode_meta=true").json

    assert {str(one["ledger"]) for one in ledgers} == set(shown) == set(texts)
    for one in ledgers:
        told, text = shown[str(one["ledger"])], texts[str(one["ledger"])]
        ensembles = {str(p["first_entry"]): p["ensemble"] for p in one["segments"]}

        assert bytes.fromhex(one["metadata_hex"]).decode("utf-8", "replace") == text
        assert ensembles == {
            first: [bookie["id"] for bookie in some] for first, some in told["allEnsembles"].items()
        }
        assert (one["E"], one["W"], one["A"], one["state"], one["last_entry"], one["length"]) == (
            told["ensembleSize"],
            told["writeQuorumSize"],
            told["ackQuorumSize"],
            told["state"],
            told["lastEntryId"],
            told["length"],
        )
        assert (one["digest_type"], one["metadata_format_version"]) == (
            told["digestType"],
            told["metadataFormatVersion"],
        )
