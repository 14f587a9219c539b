"""`bkstore audit URI` on real bookies: what they lack is found, and what they do not list is not
taken for lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bkstore.formats.entry import Coder, Entry, master_key
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.network import Client, RegisteredBookie
from bkstore.schedule import expected
from tests.interop.clusters.conftest import MakeClient, MakeCluster
from tests.interop.clusters.real_bookies import RealBookies
from tests.network.bookies_on_sockets import audited

Capsys = pytest.CaptureFixture[str]
Rows = Sequence[Mapping[str, Any]]
CODER, KEY = Coder("CRC32C", b"pw"), master_key(b"pw")
LAST = 29


class World:
    """A cluster with real bookies and our client, which writes what a test says."""

    def __init__(self, real: RealBookies) -> None:
        self.real = real
        self.uri = real.cluster.uri
        self.client = Client(self.uri)

    def ledger(
        self, names: Sequence[str], write: int, lost: Mapping[str, Sequence[int]] = {}
    ) -> LedgerId:
        """Make a closed ledger over these bookies, of which some never got some entries."""
        ensemble = tuple(self.real.id_of(name) if name in NAMES else name for name in names)
        length = sum(range(LAST + 1))
        made = LedgerMetadata(
            self.client.store.next_id(),
            len(names),
            write,
            min(2, write),
            (Segment(0, ensemble),),
            state="CLOSED",
            last_entry_id=LAST,
            length=length,
            digest_type="CRC32C",
            password=b"pw",
        )
        self.client.store.create(made)
        for place, (name, bookie_id) in enumerate(zip(names, ensemble)):
            held = expected(0, LAST, place, len(names), write).entries().tolist()
            for entry in held:
                if entry not in lost.get(name, ()):
                    total = sum(range(entry + 1))
                    record = CODER.encode(Entry(made.ledger, entry, entry - 1, total, b"x" * entry))
                    self.client.bookies[bookie_id].add_entry(record, KEY)
        return made.ledger


NAMES = {"sorted": "sorted", "interleaved": "interleaved", "spare": "sorted", "db": "db"}
LISTING = ("sorted", "interleaved", "spare")


@pytest.fixture
def world(new_cluster: MakeCluster, tmp_path: Path) -> Iterator[World]:
    """Yield a cluster of four real bookies, the last with db storage."""
    real = RealBookies(new_cluster(), tmp_path / "real", NAMES)
    found = World(real)
    yield found
    found.client.close()
    real.close()


def _found(rows: Rows) -> set[tuple[str, int, str, str]]:
    return {(row["category"], row["ledger_id"], row["bookie"], str(row["missing"])) for row in rows}


def test_nothing_is_lost(world: World, real_client: MakeClient, capsys: Capsys) -> None:
    """Clean: closed ledgers of both clients, one through a change of ensemble, an empty one, one
    that is open, and read-only bookies."""
    theirs = real_client(world.real.cluster)
    for write in (2, 3):
        world.ledger(LISTING, write)
    world.real.running.pop("db").stop()
    for write in (2, 3):
        ledger = theirs.create(3, write, 2)
        theirs.add(ledger, [b"x"] * 40)
        theirs.close_ledger(ledger)
    theirs.close_ledger(theirs.create(3, 2, 2))
    theirs.add(theirs.create(3, 2, 2), [b"open"])
    world.real.read_only(world.real.id_of("spare"), True)
    code, rows, err = audited(capsys, world.uri)

    assert (0, []) == (code, rows), err
    assert "5 of 6 ledgers checked (1 of them empty)" in err
    world.real.read_only(world.real.id_of("spare"), False)


def test_what_is_lost_is_found(world: World, capsys: Capsys) -> None:
    """Entries that a real bookie never got, and a ledger that it dropped, to the entry; other
    ledgers are clean."""
    world.ledger(LISTING, 3)
    one = world.ledger(LISTING, 3, {"sorted": [7]})
    two = world.ledger(LISTING, 2, {"interleaved": [6, 7], "spare": [LAST]})
    dropped = world.ledger(LISTING, 3)
    world.real.running["spare"].flush()  # a sorted one keeps what is in its memtable
    world.real.running["spare"].delete(dropped.ledger)
    code, rows, err = audited(capsys, world.uri)
    ids = {name: world.real.id_of(name) for name in NAMES}

    assert 1 == code, err
    assert {
        ("below_write_quorum", one.ledger, ids["sorted"], "[[7, 7]]"),
        ("below_ack_quorum", two.ledger, ids["interleaved"], "[[6, 7]]"),
        ("below_ack_quorum", two.ledger, ids["spare"], f"[[{LAST}, {LAST}]]"),
        ("below_write_quorum", dropped.ledger, ids["spare"], f"[[0, {LAST}]]"),
    } == _found(rows)


def test_bookies_that_list_nothing(world: World, tmp_path: Path, capsys: Capsys) -> None:
    """A real bookie with db storage: not judged, with what to do, and never lost; what other
    bookies lack beside it is found. A copy of its directory beside judges it too, to the entry."""
    names = ("sorted", "interleaved", "db")
    whole = world.ledger(names, 3)
    holed = world.ledger(names, 3, {"db": [4, 5], "sorted": [9]})
    db, ids = world.real.id_of("db"), {name: world.real.id_of(name) for name in NAMES}
    code, rows, err = audited(capsys, world.uri, "--timeout", 2)
    sorted_row = ("below_write_quorum", holed.ledger, ids["sorted"], "[[9, 9]]")

    assert 1 == code
    assert {sorted_row} == _found(rows)
    assert f"not judged: what {db} holds of 2 ledgers" in err
    assert f"{db}=DIR" in err

    world.real.running["db"].flush()
    shutil.copytree(world.real.root("db"), tmp_path / "copy")
    code, rows, err = audited(capsys, world.uri, f"{db}={tmp_path / 'copy'}")

    assert 1 == code
    assert {sorted_row, ("below_write_quorum", holed.ledger, db, "[[4, 5]]")} == _found(rows)
    assert "not judged: what" not in err
    assert whole.ledger not in {row["ledger_id"] for row in rows}


def test_mixed_cluster(world: World, tmp_path: Path, capsys: Capsys) -> None:
    """Real bookies and one of ours with db storage, which lists what it has."""
    with RegisteredBookie.open(world.uri, tmp_path / "ours", "db", bookie_id="ours"):
        world.ledger(("sorted", "ours", "spare"), 2)
        holed = world.ledger(("ours", "interleaved", "sorted"), 3, {"ours": [0], "sorted": [29]})
        code, rows, err = audited(capsys, world.uri)

    assert 1 == code, err
    assert {
        ("below_write_quorum", holed.ledger, "ours", "[[0, 0]]"),
        ("below_write_quorum", holed.ledger, world.real.id_of("sorted"), "[[29, 29]]"),
    } == _found(rows)


def test_a_bookie_that_is_gone(world: World, capsys: Capsys) -> None:
    """A real bookie that has stopped counts as one that gives no answer, not as one that lost all;
    back again it is judged."""
    world.ledger(LISTING, 3)
    name = world.real.stop(world.real.id_of("spare"))
    code, rows, err = audited(capsys, world.uri, "--timeout", 1, "--looks", 0)

    assert 1 == code
    assert [("bookie_unavailable", world.real.id_of("spare"), None)] == [
        (row["category"], row["bookie"], row["missing"]) for row in rows
    ]
    assert "1 of 1 ledger checked" in err
    world.real.start(name)
    code, rows, err = audited(capsys, world.uri)
    assert (0, []) == (code, rows), err
