"""`ledger/read`, `availability`, `delete`: what this bookie holds, and what is left of it."""

from __future__ import annotations

from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from bkstore import Availability, Bookie, LedgerId
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.formats.entry import Coder, Entry
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.options import StorageOptions
from bkstore.wire.admin import AdminServer, entry_endpoints
from tests.wire.admin.asking import KEY, TOKEN, ask, fill, write

pytest.importorskip("aiohttp")

READ, DELETE = "/api/v1/ledger/read", "/api/v1/ledger/delete"
AVAILABILITY = "/api/v1/ledger/availability"


def texts(payloads: dict[int, bytes]) -> dict[str, str]:
    """Return payloads as a read shows them: ASCII, one replacement for each other byte."""
    shown = {}
    for entry, data in payloads.items():
        shown[str(entry)] = "".join(chr(byte) if byte < 128 else "\ufffd" for byte in data)
    return shown


def metadata(ledger: int, digest: str, password: bytes) -> MemoryStore:
    """Return a store with one ledger."""
    store = MemoryStore()
    store.create(
        LedgerMetadata(ledger, 1, 1, 1, [(0, ["b"])], digest_type=digest, password=password)
    )
    return store


# -- read


def test_payloads_are_ascii_text(tmp_path: Path, storage: Any) -> None:
    """Each entry that is here comes with its payload; bytes that are no ASCII are U+FFFD."""
    with Bookie.open(tmp_path / "s", storage) as bookie, AdminServer(bookie) as admin:
        payloads = fill(bookie, 7, [0, 1, 2, 5, 6, 9], size=9)
        reply = ask(admin, READ, ledger_id=7)

    assert texts(payloads) == reply.json
    assert ["0", "1", "2", "5", "6", "9"] == list(reply.json)
    assert "bookie" == reply.headers["x-bkstore-source"]


def test_unflushed_entries_are_read(bookie: Bookie, admin: AdminServer) -> None:
    """What is in memory only is read like the rest."""
    bookie.add_entry(Coder("CRC32C", "pw").encode(Entry(7, 0, -1, 2, b"hi")), KEY)

    assert {"0": "hi"} == ask(admin, READ, ledger_id=7).json


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ({"start_entry_id": 3}, 3, 2499),
        ({"start_entry_id": 3, "end_entry_id": 5}, 3, 5),
        ({"end_entry_id": 2}, 0, 2),
        ({"start_entry_id": 2498, "end_entry_id": 9999}, 2498, 2499),
        ({"page": 1}, 0, 999),
        ({"page": 2}, 1000, 1999),
        ({"page": 3}, 2000, 2499),
        ({"page": 2, "start_entry_id": 1500}, 1500, 1999),
        ({"page": 2, "start_entry_id": 5, "end_entry_id": 1003}, 1000, 1003),
        ({"page": 0}, 0, 2499),
    ],
)
def test_ranges_and_pages(
    bookie: Bookie, admin: AdminServer, asked: dict[str, int], first: int, last: int
) -> None:
    """A range is inclusive; page p holds entries (p-1)*1000 to p*1000-1, cut by the range."""
    payloads = fill(bookie, 7, range(2500))
    shown = ask(admin, READ, ledger_id=7, **asked).json
    page = {"Entries for page: ": str(asked["page"])} if asked.get("page") else {}

    assert page | texts({e: payloads[e] for e in range(first, last + 1)}) == shown


@pytest.mark.parametrize(
    "asked",
    [
        {"page": 2, "end_entry_id": 5},
        {"page": 1, "start_entry_id": 1000},
        {"start_entry_id": 5, "end_entry_id": 4},
        {"end_entry_id": -2},
    ],
)
def test_a_range_that_conflicts_is_500(
    bookie: Bookie, admin: AdminServer, asked: dict[str, int]
) -> None:
    """A range without an entry, on its page or at all, is status 500, as upstream has it."""
    fill(bookie, 7, range(3))
    reply = ask(admin, READ, ledger_id=7, **asked)

    assert (500, True) == (reply.status, "start_entry_id" in reply.line)


def test_a_page_behind_the_end_is_empty(bookie: Bookie, admin: AdminServer) -> None:
    """A page that no entry lies on has only its own number."""
    fill(bookie, 7, range(3))

    assert {"Entries for page: ": "9"} == ask(admin, READ, ledger_id=7, page=9).json
    assert {} == ask(admin, READ, ledger_id=7, start_entry_id=3).json


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32"])
def test_a_checksum_tells_its_type(bookie: Bookie, admin: AdminServer, digest: str) -> None:
    """Without metadata the checksum that fits a record says where its payload begins."""
    payloads = fill(bookie, 7, range(3), digest)

    assert texts(payloads) == ask(admin, READ, ledger_id=7).json


@pytest.mark.parametrize(("digest", "word"), [("HMAC", "MAC"), ("DUMMY", "DUMMY")])
def test_other_digests_are_to_be_named(
    bookie: Bookie, admin: AdminServer, digest: str, word: str
) -> None:
    """A MAC and a record without digest do not tell themselves: 400, until they are named."""
    payloads = fill(bookie, 7, range(3), digest)
    reply = ask(admin, READ, ledger_id=7)

    assert (400, True) == (reply.status, "digest_type" in reply.line)
    assert texts(payloads) == ask(admin, READ, ledger_id=7, digest_type=word).json


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "HMAC", "DUMMY"])
def test_a_store_knows_the_digest(bookie: Bookie, digest: str) -> None:
    """With a metadata store its digest type counts, and a MAC is verified by its password."""
    payloads = fill(bookie, 7, range(3), digest)
    with AdminServer(bookie, metadata=metadata(7, digest, b"pw")) as admin:
        right = ask(admin, READ, ledger_id=7)
    with AdminServer(bookie, metadata=metadata(7, digest, b"another")) as admin:
        wrong = ask(admin, READ, ledger_id=7)

    assert texts(payloads) == right.json
    assert (500 if digest == "HMAC" else 200) == wrong.status


def test_records_of_other_scopes_name_their_digest(bookie: Bookie, admin: AdminServer) -> None:
    """Records of version 2 say their digest type; `ledger_scope_id` finds them."""
    payloads = fill(bookie, LedgerId(5, 7), range(3), "HMAC")
    reply = ask(admin, READ, ledger_id=7, ledger_scope_id=5)

    assert texts(payloads) == reply.json
    assert 404 == ask(admin, READ, ledger_id=7).status


def test_a_bad_digest_is_an_error(bookie: Bookie, admin: AdminServer) -> None:
    """A record that its digest does not verify is not shown as if it were good: 500."""
    record = bytearray(Coder("CRC32C", "pw").encode(Entry(7, 0, -1, 5, b"hello")))
    record[-1] ^= 1
    bookie.add_entry(bytes(record), KEY)
    reply = ask(admin, READ, ledger_id=7, digest_type="CRC32C")

    assert (500, True) == (reply.status, "entry 0 of ledger 7" in reply.line)


def test_long_answers_come_whole(tmp_path: Path) -> None:
    """A ledger of more bytes than a chunk, a batch and a page is read to its end."""
    with Bookie.open(tmp_path / "s", "db") as bookie, AdminServer(bookie) as admin:
        payloads = fill(bookie, 7, [*range(1500), *range(3000, 3700)], size=2000)
        reply = ask(admin, READ, ledger_id=7)

    assert texts(payloads) == reply.json
    assert "chunked" == reply.headers["transfer-encoding"]


def test_an_answer_that_cannot_be_ended_does_not_look_whole(tmp_path: Path) -> None:
    """Damage behind what was sent already ends the connection, not the JSON."""
    with Bookie.open(tmp_path / "s", "db") as bookie, AdminServer(bookie) as admin:
        fill(bookie, 7, range(200), size=2000)
        bad = bytearray(Coder("CRC32C", "pw").encode(Entry(7, 200, 199, 5, b"hello")))
        bad[-1] ^= 1
        bookie.add_entry(bytes(bad), KEY)
        with pytest.raises((IncompleteRead, ConnectionResetError)):
            ask(admin, READ, ledger_id=7)

        assert b"OK\n" == ask(admin, "/heartbeat").body


def test_an_unknown_ledger_is_not_found(admin: AdminServer) -> None:
    """No entries are not the same as no ledger: 404."""
    for path in (READ, AVAILABILITY):
        reply = ask(admin, path, ledger_id=8)

        assert (404, "ledger 8 is not on this bookie") == (reply.status, reply.line)


# -- availability


@pytest.mark.parametrize("ids", [[0], [0, 1, 3, 4, 6, 7, 9, 10], [5, 6, 9], range(3000)])
def test_availability_is_the_condensed_form(tmp_path: Path, storage: Any, ids: Any) -> None:
    """Bytes in hex, groups and ranges say which entries are here, on every storage."""
    with Bookie.open(tmp_path / "s", storage) as bookie, AdminServer(bookie) as admin:
        fill(bookie, 7, ids)
        plain = ask(admin, AVAILABILITY, ledger_id=7).json
        long = ask(admin, AVAILABILITY, ledger_id=7, encoding="bookkeeper").json
    wanted = Availability.from_entries(list(ids))

    assert (0, 7, len(ids), "grouped") == tuple(
        plain[name] for name in ("ledger_scope_id", "ledger_id", "entries", "encoding")
    )
    for answer in (plain, long):
        listed = Availability.from_bytes(bytes.fromhex(answer["bytes"])).entries().tolist()
        ranges = [e for first, last in answer["ranges"] for e in range(first, last + 1)]

        assert list(ids) == listed == ranges
        assert wanted.groups.tolist() == answer["groups"]
    assert wanted.to_bytes("bookkeeper").hex() == long["bytes"]


def test_too_many_ranges_are_left_out(
    bookie: Bookie, admin: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges above a stated number are null; the groups say the same."""
    fill(bookie, 7, range(0, 20, 2))
    monkeypatch.setattr(entry_endpoints, "MAX_RANGES", 9)
    shown = ask(admin, AVAILABILITY, ledger_id=7).json

    assert (10, [[0, 18, 1, 2]], None) == tuple(
        shown[name] for name in ("entries", "groups", "ranges")
    )
    monkeypatch.setattr(entry_endpoints, "MAX_RANGES", 10)
    assert 10 == len(ask(admin, AVAILABILITY, ledger_id=7).json["ranges"])


def test_availability_of_scopes(bookie: Bookie, admin: AdminServer) -> None:
    """`ledger_scope_id` chooses among ledgers of one number."""
    fill(bookie, 7, [1])
    fill(bookie, LedgerId(5, 7), [2, 3])
    shown = ask(admin, AVAILABILITY, ledger_id=7, ledger_scope_id=5).json

    assert (5, [[2, 3]]) == (shown["ledger_scope_id"], shown["ranges"])


# -- delete


def test_a_deleted_ledger_stays_deleted(tmp_path: Path, storage: Any) -> None:
    """Without a store the bookie forgets the ledger, durably: a crash does not bring it back."""
    with Bookie.open(tmp_path / "s", storage) as bookie:
        fill(bookie, 8, range(3))
        for entry in range(3):  # in the journal, behind the mark
            record = Coder("CRC32C", "pw").encode(Entry(7, entry, entry - 1, 2, b"hi"))
            bookie.add_entry(record, KEY)
        with AdminServer(bookie, token=TOKEN) as admin:
            reply = write(admin, DELETE, "DELETE", ledger_id=7)
            again = write(admin, DELETE, "DELETE", ledger_id=7)
        bookie.close(checkpoint=False)

    assert [(200, "Deleted ledger: 7")] * 2 == [(each.status, each.json) for each in (reply, again)]
    with Bookie.open(tmp_path / "s", storage) as bookie:
        assert [LedgerId(0, 8)] == bookie.ledgers()


def test_a_store_is_what_is_deleted_from(bookie: Bookie) -> None:
    """With a store the metadata goes, and the entries stay for garbage collection, as upstream."""
    store = metadata(7, "CRC32C", b"pw")
    fill(bookie, 7, range(3))
    with AdminServer(bookie, token=TOKEN, metadata=store) as admin:
        reply = write(admin, DELETE, "DELETE", ledger_id=7)
        again = write(admin, DELETE, "DELETE", ledger_id=7)

    assert [(200, "Deleted ledger: 7")] * 2 == [(each.status, each.json) for each in (reply, again)]
    assert ([], [LedgerId(0, 7)]) == (store.ledgers(), bookie.ledgers())


def test_delete_in_a_scope(bookie: Bookie, admin: AdminServer) -> None:
    """Only the ledger of the scope that is named goes."""
    fill(bookie, 7, [1])
    fill(bookie, LedgerId(5, 7), [1])
    write(admin, DELETE, "DELETE", ledger_id=7, ledger_scope_id=5)

    assert [LedgerId(0, 7)] == bookie.ledgers()


def test_compat_answers_are_read_alike(tmp_path: Path) -> None:
    """A storage in compat mode, whose batches are cut otherwise, is read to the end as well."""
    options = StorageOptions(compat="bookkeeper")
    with (
        Bookie.open(tmp_path / "s", "sorted", options=options) as bookie,
        AdminServer(bookie) as admin,
    ):
        payloads = fill(bookie, 7, range(50), size=60_000)

        assert texts(payloads) == ask(admin, READ, ledger_id=7).json
