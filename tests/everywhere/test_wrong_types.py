"""Arguments of a wrong type are refused at the door, by name, and no secret is shown.

Each public method of the classes below is called with good arguments but for one. What comes back
is `InvalidArgument`, never an error from inside; neither it nor its traceback has a byte of what
may be a payload, a record, a key or a password.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import Availability, Bookie, BookieDir, InvalidArgument, LedgerStorage, open_index
from bkstore.bloom import BloomFilter, FilterSet, hash_key, hash_keys
from bkstore.cluster import Client, Cluster, LedgerHandle, MemoryStore
from bkstore.formats.entry import (
    Coder,
    Entry,
    RecordBatch,
    decode,
    decode_explicit_lac,
    encode,
    encode_explicit_lac,
    explicit_lac_or_none,
    is_v2,
    master_key,
    read_batch_ids,
    record_header,
)
from bkstore.index import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.memtable import MemtableIndex
from bkstore.index.rocks import RocksIndex
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.network import Client as NetworkClient
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.journal.writer import JournalWriter
from bkstore.storage.ledgers.garbage_pass import GarbagePass
from bkstore.streams import ImageReader, StreamImage, StreamLookup, plan_compactions
from bkstore.testing.suites.storage.base import KEY, record
from bkstore.wire.admin import AdminServer
from bkstore.wire.client import WireClient, WireClients
from bkstore.wire.server import BookieServer

SECRET = "".join(("hun", "ter2"))  # in no line of source that a traceback could show
SECRET_BYTES = SECRET.encode()

# -- wrong values, by what is asked for. Text and numbers are shown: no secret among them there.

BYTES: tuple[Any, ...] = (SECRET, 5, None, 1.5, [SECRET_BYTES], {}, np.int64(5))
MANY_BYTES: tuple[Any, ...] = (SECRET, 5, None, 1.5, [SECRET], [None], [[SECRET_BYTES]], [5])
PASSWORD: tuple[Any, ...] = (5, 1.5, [SECRET], {}, "\ud800" + SECRET)
LEDGER: tuple[Any, ...] = (None, "seven", 1.5, True, SECRET_BYTES, [7], {}, 2**70)
ENTRY: tuple[Any, ...] = ("zero", 1.5, True, SECRET_BYTES, [SECRET])
IDS: tuple[Any, ...] = ("zero", ["zero"], [1.5], [None], 5.5, SECRET_BYTES, [SECRET_BYTES])
LEDGERS: tuple[Any, ...] = (5, "seven", [None], ["seven"], [SECRET_BYTES])
OBJECT: tuple[Any, ...] = (SECRET, 5, SECRET_BYTES, [SECRET], {"a": SECRET})
PATH: tuple[Any, ...] = (5, 1.5)
TEXT: tuple[Any, ...] = (5, 1.5, SECRET_BYTES, [SECRET])
NUMBER: tuple[Any, ...] = ("one", SECRET_BYTES, [SECRET], True)

WRONG: dict[str, tuple[Any, ...]] = {
    "batch": OBJECT,
    "body": BYTES,
    "bookie": TEXT,
    "bookie_id": TEXT,
    "custom_metadata": (5, SECRET, [SECRET], {"a": SECRET}, {"a": 5}, {1: SECRET_BYTES}),
    "data": BYTES,
    "digest_type": (True, "CRC", [SECRET], 1.5),
    "encoding": ("typo", 5, SECRET_BYTES, None),
    "end": NUMBER,
    "entries": IDS,
    "entry": ENTRY,
    "entry_id": ENTRY,
    "expected": OBJECT,
    "first": ENTRY,
    "h1": NUMBER,
    "h2": NUMBER,
    "ids": IDS,
    "key": BYTES,
    "keys": IDS,
    "lac": (*ENTRY, None),
    "last": ENTRY,
    "ledger": LEDGER,
    "ledgers": LEDGERS,
    "length": (*ENTRY, None),
    "limit": NUMBER,
    "live": LEDGERS,
    "location": (*ENTRY, None),
    "locations": IDS,
    "log_id": (*ENTRY, None),
    "master_key": BYTES,
    "max_count": NUMBER,
    "max_size": NUMBER,
    "name": TEXT,
    "options": OBJECT,
    "part": ("all", SECRET_BYTES, None),
    "password": (SECRET, *PASSWORD),
    "payloads": MANY_BYTES,
    "previous": ENTRY,
    "record": BYTES,
    "records": MANY_BYTES,
    "scope": ("one", 1.5, [SECRET], True),
    "seconds": NUMBER,
    "start": ENTRY,
    "state": (*OBJECT, None, LedgerState(SECRET), LedgerState(b"", explicit_lac=SECRET)),  # type: ignore[arg-type]
    "stream": NUMBER,
    "threshold": NUMBER,
    "image": (*OBJECT, None),
    "asked": (*OBJECT, None),
}
"""What a parameter of a name is given, wherever it stands; None only where it means nothing."""

OWN: dict[str, tuple[Any, ...]] = {
    "Coder.encode.entry": (SECRET, 5, None, (7, 0)),
    "BloomFilter.add.key": NUMBER,
    "LedgerStorage.check_master_key.key": tuple(bad for bad in BYTES if bad is not None),
}
"""Parameters that take something else than their name says elsewhere."""

NONE_MEANS = {
    "LedgerStorage.add_entry.master_key",
    "LedgerStorage.add_entries.master_key",
    "LedgerStorage.add_batch.master_key",
    *(f"{kind}.read_entries.master_key" for kind in ("LedgerStorage", "Bookie", "WireClient")),
    *(f"WireClient.{call}.master_key" for call in ("read_entry", "read_many")),
    "Cluster.create_ledger.ledger",
    "Coder.decode.ledger",
    "Coder.decode_batch.ledger",
}
"""Parameters that may be None."""

FREE = {
    *("recovery", "sync", "fence", "transactional", "checkpoint", "flush", "copies"),
    *("errors", "findings", "live_ledgers", "dir_index", "compat", "keep_registered"),
    *("ensemble_size", "write_quorum", "ack_quorum", "supported", "client", "storage"),
}
"""Flags, lists that are filled, and what `test_options` has."""

GOOD: dict[str, Any] = {
    "asked": GarbagePass(),
    "batch": Coder("CRC32C").encode_batch(7, [1], [b"x"]),
    "body": b"",
    "bookie": "bookie-1",
    "bookie_id": "bookie-1",
    "data": b"x",
    "entries": [0],
    "entry": 0,
    "entry_id": 1,
    "end": 1,
    "first": 0,
    "h1": 1,
    "h2": 2,
    "key": KEY,
    "keys": [1],
    "supported": True,
    "last": 0,
    "ledger": 7,
    "ledgers": [7],
    "limit": 1,
    "location": 1,
    "locations": [1],
    "log_id": 0,
    "master_key": KEY,
    "name": "one",
    "payloads": [b"x"],
    "previous": -1,
    "record": record(7, 1),
    "records": [record(7, 1)],
    "start": 0,
    "state": LedgerState(KEY),
    "stream": 1,
    "expected": Availability(),
    "image": StreamImage(),
    "seconds": 0.0,
}

CALLS: dict[type, str] = {
    LedgerStorage: (
        "add_batch add_entries add_entry availability availability_many check_master_key "
        "delete_ledger entries entry_exists explicit_lac fence is_fenced last_add_confirmed "
        "last_entry ledger_exists ledgers master_key open_ledger read_entries read_entry "
        "set_explicit_lac set_master_key source state collect_garbage clear_limbo set_limbo "
        "run_garbage_pass"
    ),
    Bookie: (
        "add_batch add_entries add_entry availability availability_many delete_ledger entries "
        "entry_exists explicit_lac fence force is_fenced last_add_confirmed last_entry "
        "ledger_exists ledgers master_key read_entries read_entry set_explicit_lac state "
        "collect_garbage"
    ),
    WireClient: (
        "add_batch add_entry availability availability_many force read_entries read_entry "
        "read_lac read_many wait_for_lac write_lac disk_space"
    ),
    LedgerHandle: (
        "append append_later append_many read read_batch read_batch_unconfirmed read_entry "
        "read_batch_with_fallback read_batch_unconfirmed_with_fallback read_unconfirmed scan "
        "force read_explicit_lac read_last read_last_confirmed tail wait_for_last_confirmed "
        "write_explicit_lac"
    ),
    Cluster: (
        "create_ledger open_ledger open_ledger_no_recovery delete_ledger bookie corrupt lose "
        "lose_ledger client path_of start stop crash heal partition slow set_batch_reads "
        "add_bookie collect_garbage"
    ),
    HierarchicalIndex: (
        "availability availability_many checked_state delete delete_many entries get get_many "
        "items last_entry ledgers list_readable_ledgers put put_many set_state state header path "
        "has_ledger can_store_explicit_lac"
    ),
    RocksIndex: (
        "availability availability_many checked_state delete delete_many entries estimate_rows get "
        "get_many items last_entry ledgers list_readable_ledgers put put_many set_state state "
        "has_ledger can_store_explicit_lac"
    ),
    MemtableIndex: (
        "availability availability_many checked_state delete delete_many entries get get_many "
        "items last_entry ledgers list_readable_ledgers put put_many set_state state has_ledger "
        "can_store_explicit_lac"
    ),
    BookieDir: (
        "dir_indexes find_logs locate log_file log_metadata read_entries read_entry scan_ledger "
        "scan_log"
    ),
    Coder: "encode encode_many encode_batch decode decode_batch",
    BloomFilter: "add add_many contains_many add_hash contains_hash",
    Availability: "contains_many missing ranges to_bytes",
    StreamLookup: "get_objects update",
}
"""The calls of each class; those that begin and end it are below or in `test_options`."""

ELSEWHERE = {
    "open",
    "close",
    "flush",
    "scan",
    "get_location_run",
    "bulk_load",
    "refuse_output",
    "metadata_cache",
    "add_record",  # its arguments are checked by `LedgerStorage.add_entry` and `Bookie.add_entry`
}


def _parameters(kind: type, call: str) -> list[str]:
    function = inspect.getattr_static(kind, call)
    assert inspect.isfunction(function), call
    return [name for name in inspect.signature(function).parameters if name != "self"]


def _values(case: str) -> tuple[Any, ...]:
    name = case.rpartition(".")[2]
    values = OWN.get(case, WRONG[name])
    return tuple(bad for bad in values if bad is not None) if case in NONE_MEANS else values


CASES = [
    f"{kind.__name__}.{call}.{name}"
    for kind, calls in CALLS.items()
    for call in calls.split()
    for name in _parameters(kind, call)
    if name not in FREE
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One of each class, with ledger 7 and its entry 0."""
    top = tmp_path_factory.mktemp("made")
    with ExitStack() as stack:
        with LedgerStorage.open(top / "copied") as copied:
            copied.add_entry(record(7, 0), master_key=KEY)
        storage = stack.enter_context(LedgerStorage.open(top / "storage", "db"))
        storage.add_entry(record(7, 0), master_key=KEY)
        bookie = stack.enter_context(Bookie.open(top / "bookie"))
        bookie.add_entry(record(7, 0), KEY)
        server = stack.enter_context(BookieServer(bookie, extended=True))
        cluster = stack.enter_context(Cluster.open(top / "cluster"))
        handle = stack.enter_context(cluster.create_ledger(3, 3, 2, ledger=7))
        handle.append(b"first")
        filters, image = BloomFilter(9), StreamImage()
        yield {
            "LedgerStorage": storage,
            "Bookie": bookie,
            "WireClient": stack.enter_context(WireClient(server.address, "v3", True)),
            "WireClient v2": stack.enter_context(WireClient(server.address)),
            "LedgerHandle": handle,
            "Cluster": cluster,
            "HierarchicalIndex": stack.enter_context(HierarchicalIndex(top / "i", writable=True)),
            "RocksIndex": stack.enter_context(RocksIndex(top / "r", writable=True)),
            "MemtableIndex": MemtableIndex(),
            "BookieDir": stack.enter_context(BookieDir(top / "copied")),
            "Coder": Coder("CRC32C", b"password"),
            "BloomFilter": filters,
            "Availability": Availability.from_entries([1, 2]),
            "StreamLookup": stack.enter_context(StreamLookup(image, ImageReader(image))),
        }


def _refuses(case: str, bad: object, call: Callable[..., Any], *given: Any, **named: Any) -> None:
    """Check that a call raises `InvalidArgument`, and shows no secret."""

    def taken() -> None:
        found = call(*given, **named)
        if isinstance(found, Iterator):
            list(found)
        pytest.fail(f"{case} takes {bad!r}")

    with pytest.raises(InvalidArgument) as caught:
        taken()
    assert SECRET not in "".join(traceback.format_exception(caught.value)), case


@pytest.mark.parametrize("case", CASES)
def test_calls(made: dict[str, Any], case: str) -> None:
    """Each argument of each call, in turn."""
    kind, call, name = case.split(".")
    names = [each for each in made if each.split()[0] == kind]
    for target in names:
        function = getattr(made[target], call)
        given = {
            each: GOOD[each] for each in inspect.signature(function).parameters if each in GOOD
        }
        if call == "encode":
            given["entry"] = Entry(7, 0, -1, 1, b"x")
        for bad in _values(case):
            _refuses(case, bad, function, **{**given, name: bad})


def test_every_call_is_here() -> None:
    """A new public call of these classes needs its row above."""
    for kind, calls in CALLS.items():
        public = {
            name
            for name in dir(kind)
            if not name.startswith("_")
            and inspect.isfunction(inspect.getattr_static(kind, name))
            and set(_parameters(kind, name)) - FREE
        }
        assert public - ELSEWHERE <= set(calls.split()), kind


def test_refused_calls_change_nothing(made: dict[str, Any]) -> None:
    """After all of them ledger 7 is as it was."""
    for name in ("LedgerStorage", "Bookie"):
        assert [0] == made[name].entries(7).tolist()
        assert KEY == made[name].master_key(7)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "password of a master key": (master_key, (*PASSWORD, None)),
    "password of a coder": (lambda bad: Coder("CRC32C", bad), PASSWORD),
    "password of HMAC": (lambda bad: Coder("HMAC", bad), PASSWORD),
    "password to encode": (lambda bad: encode(Entry(7, 0, -1, 0, b""), "HMAC", bad), PASSWORD),
    "password to decode": (lambda bad: decode(record(7, 0), "HMAC", bad), PASSWORD),
    "password of a LAC": (lambda bad: encode_explicit_lac(7, 0, "HMAC", bad), PASSWORD),
    "password of metadata": (
        lambda bad: LedgerMetadata(7, 1, 1, 1, ((0, ("b",)),), digest_type="HMAC", password=bad),  # type: ignore[arg-type]
        (5, 1.5, [SECRET], SECRET, {}),
    ),
    "digest": (lambda bad: Coder(bad), WRONG["digest_type"]),
    "LAC": (lambda bad: encode_explicit_lac(7, bad, "DUMMY"), (*ENTRY, None)),
    "ledger of a LAC": (lambda bad: encode_explicit_lac(bad, 0, "DUMMY"), LEDGER),
    "body": (decode_explicit_lac, BYTES),
    "body's entry": (explicit_lac_or_none, BYTES),
    "entry": (lambda bad: encode(bad, "CRC32C"), (SECRET, 5, None, (7, 0))),
    "payload": (lambda bad: encode(Entry(7, 0, -1, 1, bad), "CRC32C"), BYTES),
    "ledger of an entry": (lambda bad: encode(Entry(bad, 0, -1, 1, b""), "CRC32C"), LEDGER),
    "id of an entry": (lambda bad: encode(Entry(7, bad, -1, 1, b""), "CRC32C"), (*ENTRY, None)),
    "LAC of an entry": (lambda bad: encode(Entry(7, 0, bad, 1, b""), "CRC32C"), (*ENTRY, None)),
    "length of an entry": (lambda bad: encode(Entry(7, 0, 0, bad, b""), "CRC32C"), (*ENTRY, None)),
    "record": (decode, BYTES),
    "record's version": (is_v2, BYTES),
    "record's header": (record_header, BYTES),
    "batch": (read_batch_ids, OBJECT),
    "records of a batch": (lambda bad: RecordBatch.of(bad, [0]), MANY_BYTES),
    "ids of a batch": (lambda bad: RecordBatch.of([b"x"], bad), (*IDS, [1, 2], [])),
    "bytes of a filter": (BloomFilter.from_bytes, BYTES),
    "keys of a filter": (BloomFilter.of, IDS),
    "key in a filter": (lambda bad: bad in BloomFilter(9), NUMBER),
    "key added": (lambda bad: BloomFilter(9).add(bad), NUMBER),
    "ids of a set of filters": (lambda bad: FilterSet().build(1, bad), IDS),
    "key": (hash_key, NUMBER),
    "keys": (hash_keys, IDS),
    "bytes of an availability": (Availability.from_bytes, BYTES[:-1]),
    "entries": (Availability.from_entries, IDS),
    "addresses": (WireClients, (5, SECRET, [SECRET], {"a": 5}, {"a": SECRET_BYTES})),
    "option of clients": (lambda bad: WireClients(typo=bad), (5,)),
    "bookie of an admin": (AdminServer, OBJECT),
    "bookie of a server": (BookieServer, OBJECT),
    "store of a client": (lambda bad: Client(bad, {}), OBJECT),
    "placement": (lambda bad: Client(MemoryStore(), {}, bad), OBJECT),
    "store of a network client": (NetworkClient, (5, SECRET_BYTES, [SECRET], None)),
    "tls": (lambda bad: NetworkClient(MemoryStore(), tls=bad), OBJECT),
    "image": (lambda bad: StreamLookup(bad, ImageReader(StreamImage())), (*OBJECT, None)),
    "reader": (lambda bad: StreamLookup(StreamImage(), bad), (*OBJECT, None)),
    "image of a reader": (ImageReader, (*OBJECT, None)),
    "image of a plan": (plan_compactions, (*OBJECT, None)),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_functions(case: str) -> None:
    """The same of functions and of what makes objects."""
    function, values = FUNCTIONS[case]
    for bad in values:
        _refuses(case, bad, function, bad)


OPENED: dict[str, tuple[Callable[[Path, Any], Any], tuple[Any, ...]]] = {
    "storage's path": (lambda _, bad: LedgerStorage.open(bad), (*PATH, [5])),
    "storage's index_dirs": (
        lambda top, bad: LedgerStorage.open(top / "s", index_dirs=bad),
        (*PATH, [5]),
    ),
    "storage's files": (lambda top, bad: LedgerStorage.open(top / "s", files=bad), OBJECT),
    "bookie's path": (lambda _, bad: Bookie.open(bad), (*PATH, [5])),
    "bookie's ledger_dirs": (
        lambda top, bad: Bookie.open(ledger_dirs=bad, journal_dirs=[top / "j"]),
        (*PATH, [5]),
    ),
    "bookie's journal_dirs": (
        lambda top, bad: Bookie.open(ledger_dirs=[top / "l"], journal_dirs=bad),
        (*PATH, [5]),
    ),
    "bookie's id": (lambda top, bad: Bookie.open(top / "b", bookie_id=bad), TEXT),
    "bookie's instance": (lambda top, bad: Bookie.open(top / "b", instance_id=bad), TEXT),
    "bookie's files": (lambda top, bad: Bookie.open(top / "b", files=bad), OBJECT),
    "cluster's path": (lambda _, bad: Cluster.open(bad), (*PATH, [5], None)),
    "cluster's files": (lambda top, bad: Cluster.open(top / "c", files=bad), OBJECT),
    "cluster's store": (lambda top, bad: Cluster.open(top / "c", store=bad), OBJECT),
    "cluster's placement": (lambda top, bad: Cluster.open(top / "c", placement=bad), OBJECT),
    "index's files": (
        lambda top, bad: HierarchicalIndex(top / "i", writable=True, files=bad),
        OBJECT,
    ),
    "database's files": (lambda top, bad: RocksIndex(top / "r", writable=True, files=bad), OBJECT),
    "journal's files": (lambda top, bad: JournalWriter(top, files=bad), OBJECT),
    "logs' files": (lambda top, bad: EntryLogger([top], files=bad), OBJECT),
    "directory": (lambda _, bad: BookieDir(bad), (*PATH, [SECRET], None)),
    "directory's id": (lambda top, bad: BookieDir(top, bookie_id=bad), TEXT),
    "directory's root": (lambda top, bad: BookieDir(top, root=bad), (*PATH, [SECRET])),
    "index": (lambda _, bad: open_index(bad), (*PATH, [SECRET], None)),
}


@pytest.mark.parametrize("case", OPENED)
def test_openings(tmp_path: Path, case: str) -> None:
    """The same of what opens directories; nothing is made there."""
    function, values = OPENED[case]
    for bad in values:
        _refuses(case, bad, function, tmp_path, bad)

        assert [] == list(tmp_path.iterdir()), (case, bad)


def test_buffers_are_bytes(made: dict[str, Any]) -> None:
    """A bytearray or a view of one is taken for its bytes of now, wherever bytes are."""
    coder, storage = made["Coder"], made["LedgerStorage"]
    payload = bytearray(b"payload")
    expected = coder.encode(Entry(7, 5, -1, 7, b"payload"))
    for given in (payload, memoryview(payload), memoryview(b"-payload")[1:]):
        assert expected == coder.encode(Entry(7, 5, -1, 7, given))
        assert [expected] == coder.encode_many(7, [5], [given])

        pending = made["LedgerHandle"].append_later(given)
        entry = made["LedgerHandle"].read_entry(pending.result())
        assert b"payload" == entry.payload

    changed = bytearray(expected)
    storage.add_entry(changed, master_key=bytearray(KEY))
    storage.add_entries([bytearray(coder.encode(Entry(7, 6, -1, 7, b"payload")))])
    changed[:] = bytes(len(changed))

    assert expected == storage.read_entry(7, 5)
    assert [0, 5, 6] == storage.entries(7).tolist()


@pytest.mark.parametrize("count", [2, 20])
def test_as_many_payloads_as_entries(count: int) -> None:
    """Entries and payloads that are not equally many are refused, few and many alike."""
    coder = Coder("CRC32C")
    for entries, payloads in ((count, count - 1), (count - 1, count)):
        for encodes in (coder.encode_many, coder.encode_batch):
            with pytest.raises(InvalidArgument, match=f"{entries} entries, but {payloads} payl"):
                encodes(7, range(entries), [b"x"] * payloads)
