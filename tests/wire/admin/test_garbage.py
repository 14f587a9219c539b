"""`bookie/gc`, `gc_details`, `entry_location_compact`: started by PUT, told by GET."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.index.rocks import RocksIndex
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.options import StorageOptions
from bkstore.wire.admin import AdminServer
from tests.wire.admin.asking import TOKEN, Reply, ask, fill, until, write

pytest.importorskip("aiohttp")

GC, DETAILS = "/api/v1/bookie/gc", "/api/v1/bookie/gc_details"
COMPACT = "/api/v1/bookie/entry_location_compact"
MEMBERS = [
    "forceCompacting",
    "majorCompacting",
    "minorCompacting",
    "lastMajorCompactionTime",
    "lastMinorCompactionTime",
    "lastEntryLocationCompactionTime",
    "majorCompactionCounter",
    "minorCompactionCounter",
    "entryLocationCompactionCounter",
    "lastFailure",
]


def idle(admin: AdminServer) -> None:
    """Wait for the end of a pass."""
    until(lambda: ask(admin, GC).json == {"is_in_force_gc": "false"})


def collect(admin: AdminServer, body: object = None) -> Reply:
    """Have garbage collected, and wait for it."""
    reply = write(admin, GC, "PUT", body)
    idle(admin)
    return reply


def store_of(*ledgers: int) -> MemoryStore:
    """Return a store with these ledgers."""
    store = MemoryStore()
    for ledger in ledgers:
        store.create(
            LedgerMetadata(
                ledger, 1, 1, 1, [(0, ["bookie-1"])], digest_type="CRC32C", password=b"pw"
            )
        )
    return store


@pytest.fixture
def logged(tmp_path: Path, storage: Any) -> Iterator[Bookie]:
    """Return a bookie with closed entry logs in which ledgers 1 and 2 take turns."""
    options = StorageOptions(entry_log_size=8192)
    with Bookie.open(tmp_path / "b", storage, options=options, bookie_id="bookie-1") as bookie:
        for start in range(0, 40, 4):
            fill(bookie, 1, range(start, start + 4), size=400)
            fill(bookie, 2, [start], size=400)
        yield bookie


def logs(bookie: Bookie) -> set[str]:
    """Return the names of the entry logs."""
    return {path.name for place in bookie.directories.ledger for path in place.glob("*.log")}


def test_garbage_is_what_the_store_lacks(logged: Bookie) -> None:
    """A pass deletes ledgers that the store does not have, and compacts their logs away."""
    before = logs(logged)
    with AdminServer(logged, token=TOKEN, metadata=store_of(2)) as admin:
        reply = collect(admin)
        (row, *_) = ask(admin, DETAILS).json

    assert (200, "Triggered GC on BookieServer: bookie-1") == (reply.status, reply.json)
    assert [LedgerId(0, 2)] == logged.ledgers()
    assert list(range(0, 40, 4)) == logged.entries(2).tolist()
    assert before - logs(logged)
    assert (1, 0, None) == (
        row["majorCompactionCounter"],
        row["minorCompactionCounter"],
        row["lastFailure"],
    )


@pytest.mark.parametrize(
    ("body", "major", "minor", "compacts"),
    [
        (None, 1, 0, True),
        ({}, 1, 0, True),
        ({"forceMajor": True, "forceMinor": False}, 1, 0, True),
        ({"forceMajor": False}, 0, 1, False),
        ({"forceMajor": "false", "forceMinor": "TRUE"}, 0, 1, False),
        ({"forceMajor": False, "forceMinor": False}, 0, 0, False),
    ],
)
def test_what_is_forced(
    tmp_path: Path, body: object, major: int, minor: int, compacts: bool
) -> None:
    """Major compaction goes before minor; logs 60% full are for the major one, none for neither."""
    options = StorageOptions(entry_log_size=8192)
    with Bookie.open(tmp_path, "interleaved", options=options) as bookie:
        for start in range(0, 30, 3):
            fill(bookie, 2, range(start, start + 2), size=400)
            fill(bookie, 1, range(start, start + 3), size=400)
        bookie.delete_ledger(2)
        before = logs(bookie)
        with AdminServer(bookie, token=TOKEN) as admin:
            collect(admin, body)
            (row,) = ask(admin, DETAILS).json

        assert (major, minor) == (row["majorCompactionCounter"], row["minorCompactionCounter"])
        assert compacts == bool(before - logs(bookie))
        assert list(range(30)) == bookie.entries(1).tolist()


def test_without_a_store_nothing_is_deleted(logged: Bookie) -> None:
    """Without a metadata store no ledger is taken for deleted."""
    with AdminServer(logged, token=TOKEN) as admin:
        collect(admin)

    assert [LedgerId(0, 1), LedgerId(0, 2)] == logged.ledgers()
    assert list(range(40)) == logged.entries(1).tolist()


class Held(MemoryStore):
    """A store that does not list its ledgers before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.asked = 0

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Wait, then fail: what is garbage is not known."""
        self.asked += 1
        assert self.go.wait(30)
        raise OSError(5, "the store is gone")


def test_a_pass_is_told_while_it_runs(bookie: Bookie) -> None:
    """While a pass runs it is told, a second one does not begin, and other requests go on."""
    store = Held()
    fill(bookie, 7, range(3))
    with AdminServer(bookie, token=TOKEN, metadata=store) as admin:
        first = write(admin, GC, "PUT", {"forceMajor": False})
        until(lambda: store.asked == 1)
        running = ask(admin, GC).json
        (row,) = ask(admin, DETAILS).json
        second = write(admin, GC, "PUT")
        read = ask(admin, "/api/v1/ledger/read", ledger_id=7)
        store.go.set()
        idle(admin)
        (after,) = ask(admin, DETAILS).json

    assert (200, 200, 200) == (first.status, second.status, read.status)
    assert ({"is_in_force_gc": "true"}, 1) == (running, store.asked)
    assert (True, False, True) == tuple(row[name] for name in MEMBERS[:3])
    assert (False, False, False) == tuple(after[name] for name in MEMBERS[:3])


def test_a_pass_that_failed_deletes_nothing(bookie: Bookie) -> None:
    """Where the store cannot be asked nothing is taken for garbage, and the reason is told."""
    store = Held()
    store.go.set()
    fill(bookie, 7, range(3))
    with AdminServer(bookie, token=TOKEN, metadata=store) as admin:
        collect(admin)
        (row,) = ask(admin, DETAILS).json
        store.ledgers = lambda scope=None: [LedgerId(0, 7)]  # type: ignore[method-assign]
        collect(admin)
        (good,) = ask(admin, DETAILS).json

    assert [LedgerId(0, 7)] == bookie.ledgers()
    assert ("store is gone" in row["lastFailure"], None) == (True, good["lastFailure"])


def test_details_have_the_members_of_the_real_ones(tmp_path: Path) -> None:
    """Details have upstream's members in its order, a row a directory of db storage."""
    places = {"ledger_dirs": [tmp_path / "a", tmp_path / "b"], "journal_dirs": [tmp_path / "j"]}
    for storage, count in (("db", 2), ("sorted", 1)):
        where = {name: [p / storage for p in paths] for name, paths in places.items()}
        with (
            Bookie.open(None, storage, **where) as bookie,  # type: ignore[arg-type]
            AdminServer(bookie) as admin,
        ):
            rows = ask(admin, DETAILS).json

        assert [MEMBERS] * count == [list(row) for row in rows]


def test_passes_of_others_count(logged: Bookie) -> None:
    """Passes that nobody asked for over HTTP are told as well: major or minor, by what they
    compact; one that compacts nothing is neither."""
    logged.collect_garbage(threshold=0.2)
    with AdminServer(logged, token=TOKEN) as admin:
        logged.collect_garbage(threshold=0.5)
        logged.collect_garbage(threshold=None)
        collect(admin)
        (row, *_) = ask(admin, DETAILS).json

    assert (2, 1) == (row["majorCompactionCounter"], row["minorCompactionCounter"])


def test_times_are_milliseconds(bookie: Bookie, admin: AdminServer) -> None:
    """Times begin with the opening of the bookie; a major pass sets that of the minor one too."""
    (before,) = ask(admin, DETAILS).json
    until(lambda: _passes(admin)["lastMajorCompactionTime"] > before["lastMajorCompactionTime"])
    (after,) = ask(admin, DETAILS).json

    assert before["lastMajorCompactionTime"] > 1_600_000_000_000
    assert after["lastMajorCompactionTime"] == after["lastMinorCompactionTime"]
    assert before["lastEntryLocationCompactionTime"] == after["lastEntryLocationCompactionTime"]


def _passes(admin: AdminServer) -> Any:
    collect(admin)
    return ask(admin, DETAILS).json[0]


# -- suspending compaction


SUSPEND = "/api/v1/bookie/gc/suspend_compaction"
RESUME = "/api/v1/bookie/gc/resume_compaction"
SERVER = "Bookie Server listening on bookie-1 with id bookie-1"


def _suspended(admin: AdminServer) -> tuple[str, str]:
    found = ask(admin, SUSPEND).json
    assert ["isMajorGcSuspended", "isMinorGcSuspended"] == list(found)
    return found["isMajorGcSuspended"], found["isMinorGcSuspended"]


def test_compaction_is_suspended_and_resumed(bookie: Bookie) -> None:
    """Answers are worded as `SuspendCompactionService` and `ResumeCompactionService` word them;
    False asks for nothing; a pass that is forced without a body compacts what is not suspended."""
    with AdminServer(bookie, token=TOKEN) as admin:
        assert ("false", "false") == _suspended(admin)

        reply = write(admin, SUSPEND, "PUT", {"suspendMajor": True, "suspendMinor": True})

        words = ", ".join(
            f"Suspend {kind}GC on BookieServer: {SERVER}" for kind in ("major", "minor")
        )

        assert words == reply.json
        assert (200, ("true", "true")) == (reply.status, _suspended(admin))

        collect(admin)
        first = ask(admin, DETAILS).json[0]
        reply = write(admin, RESUME, "PUT", {"resumeMajor": False, "resumeMinor": True})

        assert f", Resume minorGC on BookieServer: {SERVER}" == reply.json
        assert ("true", "false") == _suspended(admin)

        collect(admin)
        second = ask(admin, DETAILS).json[0]
        collect(admin, {"forceMajor": True})
        third = ask(admin, DETAILS).json[0]

    assert [(0, 0), (0, 1), (1, 1)] == [
        (row["majorCompactionCounter"], row["minorCompactionCounter"])
        for row in (first, second, third)
    ]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (SUSPEND, None, "Empty request body"),
        (RESUME, None, "Empty request body"),
        (SUSPEND, {}, "No suspendMajor or suspendMinor params found"),
        (RESUME, {"suspendMajor": True}, "No resumeMajor or resumeMinor params found"),
        (SUSPEND, {"suspendMajor": "true"}, "suspendMajor and suspendMinor are booleans"),
    ],
)
def test_what_suspends_nothing(admin: AdminServer, path: str, body: object, said: str) -> None:
    """A body that is missing, names neither kind, or says something else than true or false."""
    reply = write(admin, path, "PUT", body)

    assert (400, said) == (reply.status, reply.line)
    assert ("false", "false") == _suspended(admin)
    assert 404 == ask(admin, RESUME).status
    assert 401 == ask(admin, SUSPEND, "PUT", b'{"suspendMajor": true}').status


# -- entry locations


def test_locations_are_compacted(tmp_path: Path) -> None:
    """A compaction drops the rows of deleted ledgers from the tables, and loses no other."""
    with Bookie.open(tmp_path, "db", bookie_id="bookie-1") as bookie:
        place = tmp_path / "ledgers/current/locations"
        fill(bookie, 1, range(2000))
        fill(bookie, LedgerId(5, 1), range(10))
        fill(bookie, 2, range(100))
        bookie.delete_ledger(1)
        bookie.checkpoint()
        index = bookie.storage.write_paths[0].index
        assert isinstance(index, RocksIndex)
        locations = index._databases["locations", False]
        before = int(locations.property("estimate-num-keys"))
        with AdminServer(bookie, token=TOKEN) as admin:
            assert {str(place): False} == ask(admin, COMPACT).json
            reply = write(admin, COMPACT, "PUT", {"entryLocationRocksDBCompact": True})
            until(lambda: ask(admin, DETAILS).json[0]["entryLocationCompactionCounter"] == 1)

        said = "Triggered entry Location RocksDB compact on bookie:bookie-1"
        assert (200, said) == (reply.status, reply.json)
        assert list(range(100)) == bookie.entries(2).tolist()
        assert list(range(10)) == bookie.entries(LedgerId(5, 1)).tolist()
        assert before > 1000 > 100 >= int(locations.property("estimate-num-keys"))


def test_places_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several directories those named are compacted; while one is, only it says so."""
    places = {"ledger_dirs": [tmp_path / "a", tmp_path / "b"], "journal_dirs": [tmp_path / "j"]}
    go, begun = threading.Event(), threading.Event()

    def compact(index: RocksIndex) -> None:
        begun.set()
        assert go.wait(30)

    monkeypatch.setattr(RocksIndex, "compact_locations", compact)
    with (
        Bookie.open(None, "db", **places) as bookie,  # type: ignore[arg-type]
        AdminServer(bookie, token=TOKEN) as admin,
    ):
        one, two = (str(tmp_path / name / "current" / "locations") for name in "ab")
        body = {"entryLocationRocksDBCompact": True, "entryLocations": two}
        reply = write(admin, COMPACT, "PUT", body)
        assert begun.wait(30)
        running = ask(admin, COMPACT).json
        go.set()
        until(lambda: not any(ask(admin, COMPACT).json.values()))

    assert (200, {one: False, two: True}) == (reply.status, running)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"  ", "empty"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 8000, "is not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"entryLocationRocksDBCompact": "yes"}', "boolean"),
        (b'{"entryLocationRocksDBCompact": true, "entryLocations": 7}', "text"),
        (b'{"entryLocationRocksDBCompact": true, "entryLocations": "/nowhere"}', "/nowhere"),
    ],
)
def test_bodies_that_are_refused(admin: AdminServer, body: bytes, reason: str) -> None:
    """A body that is no order, or names an unknown place, is 400 with the reason."""
    reply = ask(admin, COMPACT, "PUT", body, {"Authorization": f"Bearer {TOKEN}"})

    assert (400, True) == (reply.status, reason in reply.line)


def test_not_asked_for_is_not_done(admin: AdminServer) -> None:
    """A body that says false, or nothing of it, does nothing, with 200 as upstream."""
    for body in ({}, {"entryLocationRocksDBCompact": False}):
        assert 200 == write(admin, COMPACT, "PUT", body).status
    assert 0 == ask(admin, DETAILS).json[0]["entryLocationCompactionCounter"]


def test_other_storages_have_no_locations(tmp_path: Path) -> None:
    """Where the index is no RocksDB there is nothing to compact: 400, and an empty object."""
    with Bookie.open(tmp_path, "sorted") as bookie, AdminServer(bookie, token=TOKEN) as admin:
        reply = write(admin, COMPACT, "PUT", {"entryLocationRocksDBCompact": True})

        assert (400, {}) == (reply.status, ask(admin, COMPACT).json)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"forceMajor": "perhaps"}', b"\x00"])
def test_gc_bodies_that_are_refused(bookie: Bookie, admin: AdminServer, body: bytes) -> None:
    """A body of `gc` that cannot be read is 400, and no pass begins."""
    reply = ask(admin, GC, "PUT", body, {"Authorization": f"Bearer {TOKEN}"})

    assert (400, True) == (reply.status, bool(reply.line))
    assert {"is_in_force_gc": "false"} == ask(admin, GC).json
    assert 0 == ask(admin, DETAILS).json[0]["majorCompactionCounter"]
