"""`ledger/list` and `ledger/metadata`: pages, forms, scopes, and where they come from."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import NoSuchLedger
from bkstore.formats.entry import encode_explicit_lac
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.wire.admin import AdminServer
from tests.wire.admin.asking import KEY, ask, fill

pytest.importorskip("aiohttp")

LIST, METADATA = "/api/v1/ledger/list", "/api/v1/ledger/metadata"


def open_ledger(number: int | LedgerId) -> LedgerMetadata:
    """Return metadata of an open ledger with two segments."""
    segments = [(0, ["b1:3181", "b2"]), (10, ["b1:3181", "b3"])]
    return LedgerMetadata(
        number,
        2,
        2,
        1,
        segments,
        digest_type="HMAC",
        password="pwé".encode(),
        ctime=1234567,
        store_ctime=True,
        custom_metadata={"k": b"\x01\x02\xff"},
    )


JACKSON: dict[str, Any] = {  # what a real bookie's class prints of the same metadata
    "ledgerId": 7,
    "metadataFormatVersion": 3,
    "ensembleSize": 2,
    "writeQuorumSize": 2,
    "ackQuorumSize": 1,
    "state": "OPEN",
    "length": 0,
    "lastEntryId": -1,
    "ctime": 1234567,
    "digestType": "MAC",
    "password": "cHfDqQ==",
    "customMetadata": {"k": "AQL/"},
    "allEnsembles": {
        "0": [{"id": "b1:3181"}, {"id": "b2"}],
        "10": [{"id": "b1:3181"}, {"id": "b3"}],
    },
    "closed": False,
    "ctoken": 0,
}


@pytest.fixture
def store() -> MemoryStore:
    """Return a metadata store with 250 ledgers of scope 0, ids 1000 and up, and one of scope 5."""
    made = MemoryStore()
    for number in range(1000, 1250):
        made.create(open_ledger(number))
    made.create(open_ledger(LedgerId(5, 2**64 - 1)))
    return made


@pytest.fixture
def admin(bookie: Bookie, store: MemoryStore) -> Iterator[AdminServer]:
    """Return an admin over that store."""
    with AdminServer(bookie, metadata=store) as serving:
        yield serving


def test_a_list_has_nulls(admin: AdminServer, bookie: Bookie) -> None:
    """Without `print_metadata` each id of the store leads to null, whatever the bookie holds."""
    fill(bookie, 3, range(2))
    reply = ask(admin, LIST)

    assert {str(number): None for number in range(1000, 1250)} == reply.json
    assert "metadata-store" == reply.headers["x-bkstore-source"]
    assert reply.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize(
    ("page", "first", "last"), [(1, 1000, 1099), (2, 1100, 1199), (3, 1200, 1249), (4, 0, -1)]
)
def test_pages_have_a_hundred(admin: AdminServer, page: int, first: int, last: int) -> None:
    """Page p of the metadata has ledgers (p-1)*100 to p*100-1 of the list."""
    reply = ask(admin, LIST, print_metadata="true", page=page)

    assert list(map(str, range(first, last + 1))) == list(reply.json)


@pytest.mark.parametrize(
    ("page", "first", "last"), [(1, 1000, 1098), (2, 1099, 1198), (3, 1199, 1249)]
)
def test_upstream_pages_begin_with_99(
    bookie: Bookie, store: MemoryStore, page: int, first: int, last: int
) -> None:
    """In compat mode page 1 ends before the 100th ledger, as a counter from 1 has it."""
    with AdminServer(bookie, metadata=store, compat="bookkeeper") as admin:
        reply = ask(admin, LIST, print_metadata="true", page=page)

    assert list(map(str, range(first, last + 1))) == list(reply.json)


@pytest.mark.parametrize("page", ["0", "-3"])
def test_no_page_is_all_of_them(admin: AdminServer, page: str) -> None:
    """Page 0 and below mean no page; without `print_metadata` a page means nothing."""
    assert 250 == len(ask(admin, LIST, print_metadata="true", page=page).json)
    assert 250 == len(ask(admin, LIST, page=2).json)


def test_metadata_has_the_members_of_the_real_one(bookie: Bookie, store: MemoryStore) -> None:
    """Decoded metadata has Jackson's members and order; the password only in compat mode."""
    store.create(open_ledger(7))
    with AdminServer(bookie, metadata=store, compat="bookkeeper") as admin:
        faithful = ask(admin, METADATA, ledger_id=7)
        listed = ask(admin, LIST, print_metadata="true", decode_meta="true").json["7"]
    with AdminServer(bookie, metadata=store) as admin:
        plain = ask(admin, METADATA, ledger_id=7)

    assert {"7": JACKSON} == faithful.json == {"7": listed}
    assert list(JACKSON) == list(faithful.json["7"])
    assert {"7": {**JACKSON, "password": None}} == plain.json
    assert b"cHfDqQ" not in plain.body


def test_metadata_of_a_closed_ledger(bookie: Bookie, store: MemoryStore) -> None:
    """Length and last entry of a closed ledger are shown; without a digest there is none."""
    closed = LedgerMetadata(
        8, 1, 1, 1, [(0, ["b"])], state="CLOSED", last_entry_id=12, length=99, version=1
    )
    store.create(closed)
    with AdminServer(bookie, metadata=store, compat="bookkeeper") as admin:
        shown = ask(admin, METADATA, ledger_id=8).json["8"]

    assert ("CLOSED", True, 12, 99) == tuple(
        shown[name] for name in ("state", "closed", "lastEntryId", "length")
    )
    assert (None, "", 1, -1) == tuple(
        shown[name] for name in ("digestType", "password", "metadataFormatVersion", "ctime")
    )


def test_undecoded_metadata_is_its_bytes_as_text(bookie: Bookie, store: MemoryStore) -> None:
    """Without `decode_meta` the bytes are read as UTF-8, with U+FFFD for what is none."""
    real = bytes.fromhex(
        "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4f08021002180020ffffffffffffff"
        "ffff012801320f0a0762313a333138310a0262321000320f0a0762313a333138310a026233100a38024204"
        "7077c3a948015087ad4b5a080a016b12030102ff6000"
    )
    store.create(open_ledger(7))
    with AdminServer(bookie, metadata=store, compat="bookkeeper") as admin:
        faithful = ask(admin, LIST, print_metadata="true").json["7"]
    with AdminServer(bookie, metadata=store) as admin:
        plain = ask(admin, LIST, print_metadata="true").json["7"]

    assert real.decode("utf-8", "replace") == faithful
    assert "pwé" in faithful
    assert "pwé" not in plain
    assert plain.startswith("BookieMetadataFormatVersion\t3\n")


def test_scopes_have_lists_of_their_own(admin: AdminServer) -> None:
    """`ledger_scope_id` chooses a scope; ids are unsigned, and its metadata names the scope."""
    number = 2**64 - 1
    shown = ask(admin, METADATA, ledger_id="0xffffffffffffffff", ledger_scope_id=5)
    signed = ask(admin, METADATA, ledger_id=-1, ledger_scope_id=5)

    assert {str(number): None} == ask(admin, LIST, ledger_scope_id=5).json
    assert {} == ask(admin, LIST, ledger_scope_id=6).json
    assert (number, 5) == (
        shown.json[str(number)]["ledgerId"],
        shown.json[str(number)]["ledgerScopeId"],
    )
    assert shown.json == signed.json


def test_an_unknown_ledger_is_not_found(admin: AdminServer) -> None:
    """Metadata of a ledger that the store does not have is 404, with the reason."""
    reply = ask(admin, METADATA, ledger_id=9)

    assert (404, True) == (reply.status, "9" in reply.line)


def test_ledgers_that_go_meanwhile_are_left_out(bookie: Bookie, store: MemoryStore) -> None:
    """A ledger that is deleted between the listing and its turn does not spoil the others."""

    class Vanishing(MemoryStore):
        def read(self, ledger: int | LedgerId) -> Any:
            if LedgerId.of(ledger).ledger == 1001:
                raise NoSuchLedger("gone")
            return store.read(ledger)

        def ledgers(self, scope: int | None = None) -> list[LedgerId]:
            return store.ledgers(scope)[:3]

    with AdminServer(bookie, metadata=Vanishing()) as admin:
        reply = ask(admin, LIST, print_metadata="true")

    assert ["1000", "1002"] == list(reply.json)


def test_without_a_store_the_bookie_tells(tmp_path: Path, storage: Any) -> None:
    """Without a store the lists have what the bookie holds, and say so."""
    with Bookie.open(tmp_path / "s", storage) as bookie, AdminServer(bookie) as admin:
        fill(bookie, 7, [0, 1, 4])
        fill(bookie, LedgerId(9, 3), [2])
        bookie.fence(7, KEY)
        bookie.set_explicit_lac(7, encode_explicit_lac(7, 3, "CRC32C", "pw"), KEY)
        held = {
            "source": "bookie",
            "ledgerId": 7,
            "ledgerScopeId": 0,
            "entries": 3,
            "firstEntryId": 0,
            "lastEntryId": 4,
            "fenced": True,
            "limbo": False,
            "explicitLac": 3,
        }
        listed = ask(admin, LIST)

        assert {"7": None} == listed.json
        assert "bookie" == listed.headers["x-bkstore-source"]
        assert {"7": held} == ask(admin, METADATA, ledger_id=7).json
        assert {"7": held} == ask(admin, LIST, print_metadata="true").json
        assert {"3": None} == ask(admin, LIST, ledger_scope_id=9).json
        assert 404 == ask(admin, METADATA, ledger_id=3).status


def test_base64_of_custom_metadata(admin: AdminServer) -> None:
    """Values of custom metadata are bytes: they come in base64."""
    shown = ask(admin, METADATA, ledger_id=1000).json["1000"]["customMetadata"]

    assert b"\x01\x02\xff" == base64.b64decode(shown["k"])
