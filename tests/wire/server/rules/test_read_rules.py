"""What reads are answered with, rule by rule, without a socket: LACs, long polls, fencing, runs of
reads, batches (`ReadEntryProcessorV3`, `LongPollReadEntryProcessorV3`, `ReadLacProcessorV3`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bkstore.formats.entry import Coder, Entry, encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import JournalOptions
from bkstore.wire.server.long_polls import LongPolls
from bkstore.wire.server.requests.operations import (
    BatchReadOperation,
    BookieInfoOperation,
    EncodedResponse,
    ListEntriesOperation,
    ReadLacOperation,
    ReadOperation,
    WriteLacOperation,
)
from bkstore.wire.server.rules import BookieRules
from tests.wire.server.peer import KEY

CODER = Coder("CRC32C", "password")
LAST = 5
JOURNAL = JournalOptions(preallocate=64 << 10)


def _record(ledger: LedgerId, entry: int) -> bytes:
    return CODER.encode(Entry(ledger, entry, entry - 1, (entry + 1) * 7, b"payload"))


def _of(ledger: int, entry: int) -> bytes:
    return _record(LedgerId.of(ledger), entry)


@pytest.fixture
def rules(tmp_path: Path) -> Iterator[BookieRules]:
    """Return the rules of a bookie: ledger 7 and (5, 7) have entries 0..5, 8 just its key, 9 an
    explicit LAC and no entry."""
    with Bookie.open(tmp_path, "interleaved", journal=JOURNAL) as bookie:
        for ledger in (LedgerId.of(7), LedgerId(5, 7)):
            for entry in range(LAST + 1):
                bookie.add_entry(_record(ledger, entry), KEY)
        for ledger in (8, 9):
            bookie.storage.set_master_key(ledger, KEY)
        bookie.set_explicit_lac(9, encode_explicit_lac(9, 4, "CRC32C", "password"), KEY)
        yield BookieRules(bookie)


class Told:
    """Operations, and what each was answered with: status and what was found."""

    def __init__(self, rules: BookieRules) -> None:
        self.rules = rules
        self.found: list[tuple[Any, ...]] = []

    def reply(self, status: Any, *found: Any) -> bytes:
        """Remember; views of records as bytes."""
        told = [bytes(one) if isinstance(one, memoryview) else one for one in found]
        self.found.append((status.name, *told))
        return b""

    def make(self, kind: Any, *, scope: int = 0, ledger: int = 7, **fields: Any) -> Any:
        """Return an operation."""
        if kind is BookieInfoOperation:
            return BookieInfoOperation("GET_BOOKIE_INFO", 3, self.reply, **fields)
        return kind("SOMETHING", 3, self.reply, ledger_number=ledger, scope=scope, **fields)

    def ask(self, *operations: Any) -> list[tuple[Any, ...]]:
        """Return what reads are answered with; () for one that has to wait."""
        self.found = []
        waiting = list(operations)
        answers: list[Any] = []
        while waiting:
            done, waiting = self.rules.read(waiting)
            answers += done
        told = iter(self.found)
        return [next(told) if isinstance(answer, EncodedResponse) else () for answer in answers]

    def read(self, **fields: Any) -> tuple[Any, ...]:
        """Return the answer to one read."""
        (found,) = self.ask(self.make(ReadOperation, **fields))
        return found


@pytest.fixture
def told(rules: BookieRules) -> Told:
    """Return what asks and remembers."""
    return Told(rules)


def test_single_reads(told: Told) -> None:
    """An entry with the LAC if that is asked for; -1 is the last; what is not here has a status."""
    assert ("EOK", _of(7, 3), None, None, None) == told.read(entry_id=3)
    assert ("EOK", _of(7, LAST), LAST - 1, None, None) == told.read(entry_id=-1, needs_lac=True)
    assert ["ENOENTRY", "ENOLEDGER", "EBADREQ"] == [
        told.read(**fields)[0]
        for fields in (
            {"entry_id": 6},
            {"ledger": 77, "entry_id": 0},
            {"ledger": -5, "entry_id": 0},
        )
    ]


def test_runs_of_reads_are_single_reads(told: Told) -> None:
    """Reads that come together, of entries in a row or not, of two scopes, with LAC and without,
    to the end of the ledger and behind it: each has the answer that it has alone."""
    asked = [
        *({"entry_id": entry} for entry in range(3)),
        {"entry_id": 3, "scope": 5},
        {"entry_id": 4},
        {"entry_id": 5, "needs_lac": True},
        {"entry_id": 6},
        {"entry_id": 0, "scope": 5, "needs_lac": True},
        {"entry_id": 1, "scope": 5},
        {"entry_id": 0, "ledger": 8},
        {"entry_id": 2},
        {"entry_id": 1},
        {"entry_id": -1},
        {"entry_id": 0},
        {"entry_id": 0},
        {"entry_id": 1, "ledger": 77},
        {"entry_id": 2, "previous_lac": 2, "timeout_millis": 5},
        {"entry_id": 3},
    ]
    alone = [told.read(**fields)[:3] for fields in asked]
    together = [
        each[:3] for each in told.ask(*(told.make(ReadOperation, **each) for each in asked))
    ]

    assert alone == together
    assert _record(LedgerId(5, 7), 3) == together[3][1]
    assert [None, LAST - 1, None] == [together[at][2] if at != 6 else None for at in (4, 5, 6)]


@pytest.mark.parametrize(
    ("previous", "fields", "expected"),
    [
        (3, {"timeout_millis": 9}, ("EOK", _of(7, 4), 4, 4, None)),
        (4, {"timeout_millis": 9}, ()),
        (5, {"timeout_millis": 9}, ()),
        (4, {"timeout_millis": 9, "expired": True}, ("EOK", None, 4)),
        (4, {}, ("EOK", None, 4)),
        (3, {}, ("EOK", _of(7, 4), 4, 4, None)),
        (-1, {"timeout_millis": 9, "lac_update_millis": 8}, ("EOK", _of(7, 0), 4, 0, 8)),
        (3, {"timeout_millis": 9, "entry_id": 2}, ("EBADREQ",)),
        (3, {"ledger": 77}, ("ENOLEDGER",)),
    ],
)
def test_long_polls_with_the_entry_behind(
    told: Told, previous: int, fields: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """Up to the known LAC one waits, if it has time; above it comes the entry behind the known
    LAC, with LAC and id. When the time is over the LAC comes alone."""
    assert expected == told.read(previous_lac=previous, piggyback=True, **fields)


@pytest.mark.parametrize(
    ("previous", "fields", "expected"),
    [
        (4, {"timeout_millis": 9, "entry_id": 2}, ()),
        (3, {"timeout_millis": 9, "entry_id": 2}, ("EOK", _of(7, 2))),
        (4, {"entry_id": 2}, ("EOK", _of(7, 2))),
        (4, {"timeout_millis": 0, "expired": True}, ("EOK", _of(7, LAST))),
    ],
)
def test_long_polls_of_an_entry(
    told: Told, previous: int, fields: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """Without the piggyback the entry that was named is read, once the LAC is above."""
    assert expected == told.read(previous_lac=previous, **fields)[:2]


def test_reads_of_the_lac(told: Told) -> None:
    """The explicit LAC and the last entry, what there is of them: without an entry EIO, as
    upstream, without either ENOENTRY; a ledger that no id can be is EBADREQ."""
    lac = encode_explicit_lac(9, 4, "CRC32C", "password")
    found = {
        ledger: told.ask(told.make(ReadLacOperation, ledger=ledger))[0]
        for ledger in (7, 8, 9, 77, -5)
    }

    assert {
        7: ("EOK", None, _of(7, LAST)),
        8: ("ENOENTRY", None, None),
        9: ("EIO", lac, None),
        77: ("ENOENTRY", None, None),
        -5: ("EBADREQ", None, None),
    } == found


def test_fencing_reads(told: Told) -> None:
    """A read that fences needs the key; it fences also where the entry is not here."""
    for fields in ({"master_key": None}, {"master_key": b"x" * 20}):
        assert "EUA" == told.read(entry_id=0, fence=True, **fields)[0]
        assert not told.rules.bookie.storage.is_fenced(7)
    assert "ENOENTRY" == told.read(entry_id=9, fence=True, master_key=KEY)[0]
    assert told.rules.bookie.storage.is_fenced(7)
    run = told.ask(
        told.make(ReadOperation, scope=5, entry_id=0),
        told.make(ReadOperation, scope=5, entry_id=1, fence=True, master_key=KEY),
    )
    assert ["EOK", "EOK"] == [each[0] for each in run]
    assert told.rules.bookie.storage.is_fenced(LedgerId(5, 7))
    batch = told.make(BatchReadOperation, ledger=8, fence=True, master_key=KEY)
    assert "ENOENTRY" == told.ask(batch)[0][0]
    assert told.rules.bookie.storage.is_fenced(8)


@pytest.mark.parametrize(
    ("fields", "entries"),
    [
        ({"entry_id": 2}, [2]),
        ({"entry_id": 2, "max_size": 5000}, [2, 3, 4, 5]),
        ({"entry_id": 2, "max_count": 3, "max_size": 5000}, [2, 3, 4]),
        ({"entry_id": 2, "max_count": -1, "max_size": 5000}, [2, 3, 4, 5]),
        ({"entry_id": 2, "max_count": 3, "max_size": -1}, [2]),
        ({"entry_id": -1, "max_count": 1, "max_size": 5000}, [5]),
        ({"entry_id": -1, "max_count": 3, "max_size": 5000}, [5, 0, 1]),
        ({"entry_id": -1, "max_count": 3, "max_size": 36 + 2 * (4 + 43)}, [5, 0]),
        ({"entry_id": -1, "max_count": 3, "max_size": 36 + 2 * (4 + 43) - 1}, [5]),
        ({"entry_id": 2, "max_count": 3, "max_size": 36 + 2 * (4 + 43)}, [2, 3]),
    ],
)
def test_batch_reads(told: Told, fields: dict[str, Any], entries: list[int]) -> None:
    """Entries from the first on, up to both limits: a frame is 36 bytes, and 4 more than each
    record; from the last one on come 0, 1 and so on."""
    (found,) = told.ask(told.make(BatchReadOperation, needs_lac=True, **fields))

    assert ("EOK", [_of(7, entry) for entry in entries], LAST - 1) == (
        found[0],
        found[1].records(),
        found[2],
    )


def test_lists_and_sizes(told: Told) -> None:
    """A list of an unknown ledger is ENOLEDGER, of one without entries empty; of a disk's sizes
    come those that are asked for."""
    lists = [told.ask(told.make(ListEntriesOperation, ledger=ledger))[0] for ledger in (77, 8)]
    sizes = [
        told.ask(told.make(BookieInfoOperation, needs_total=total, needs_free=free))[0]
        for total, free in ((False, False), (True, False), (False, True))
    ]

    assert [("ENOLEDGER",), ("EOK", bytes(64))] == lists
    assert [(False, False), (True, False), (False, True)] == [
        (total is not None, free is not None) for _, total, free in sizes
    ]


def test_a_ledger_whose_key_is_not_known(told: Told) -> None:
    """Where an index was made again without keys, zeros stand for one: whoever asks is let in."""
    bookie = told.rules.bookie
    bookie.storage.set_master_key(20, bytes(20))

    assert "ENOENTRY" == told.read(ledger=20, entry_id=0, fence=True, master_key=KEY)[0]


def test_explicit_lacs_of_a_read_only_bookie(told: Told) -> None:
    """They are refused, as adds are; with another key too."""
    lac = encode_explicit_lac(7, 3, "CRC32C", "password")

    def written(key: bytes) -> str:
        asked = told.make(WriteLacOperation, master_key=key, body=lac)
        ((answer,), waits) = told.rules.write([asked])
        assert waits == (answer.status.name == "EOK")
        return answer.status.name

    assert ["EUA", "EOK"] == [written(b"x" * 20), written(KEY)]
    told.rules.read_only = True
    assert "EREADONLY" == written(KEY)


# -- waiting


class _Loop:
    """A loop and a pool whose time is told, and which does what it is given when it is told."""

    def __init__(self) -> None:
        self.now = 50.0
        self.later: list[tuple[float, Any, tuple[Any, ...]]] = []

    def time(self) -> float:
        """Return the time."""
        return self.now

    def call_later(self, delay: float, what: Any, *words: Any) -> Any:
        """Keep a call."""
        entry = (round(self.now + delay, 3), what, words)
        self.later.append(entry)
        return SimpleNamespace(cancel=lambda: self.later.remove(entry))

    def call_soon_threadsafe(self, what: Any, *words: Any) -> None:
        """Call."""
        what(*words)

    def submit(self, job: Any) -> None:
        """Do a job."""
        job()


def test_how_long_a_read_waits(told: Told) -> None:
    """A read that waits is asked again `timeOut` milliseconds after it came, or as soon as the
    LAC is above the one it knows, or the ledger was fenced; then its timer is gone."""
    loop, lacs, fenced, again = _Loop(), {7: 4, 8: 0, 9: 0}, {9}, []
    shared: Any = loop
    bookie: Any = SimpleNamespace(
        last_add_confirmed=lambda ledger: lacs[ledger.ledger],
        is_fenced=lambda ledger: ledger.ledger in fenced,
    )
    polls = LongPolls(shared, shared, bookie)
    first, second, third, fourth, fifth = (
        told.make(
            ReadOperation, ledger=ledger, previous_lac=lac, timeout_millis=time, received_at=49.5
        )
        for ledger, lac, time in (
            *((7, 4, 2000), (7, 5, 30_000), (8, 0, 10**12)),
            *((8, 1, 10**12), (9, 0, 10**12)),
        )
    )
    fifth.was_fenced = True
    for read in (first, second, third, fourth, fifth):
        polls.park(read, again.append)
    timers = {words[0]: at for at, what, words in loop.later if what == polls.expire}
    day = dict.fromkeys((third, fourth, fifth), 50.0 + 86400)

    assert {first: 51.5, second: 79.5} | day == timers
    polls.poll_bookie()
    assert [] == again
    lacs[7] = 5
    polls.poll_bookie()
    assert [first] == again
    assert not first.expired
    polls.expire(second)
    assert [first, second] == again
    assert second.expired
    lacs[8] = 1
    polls.poll_bookie()
    assert [first, second, third] == again
    fenced.add(8)
    polls.poll_bookie()
    assert [first, second, third, fourth] == again
    assert fourth.expired
    lacs[9] = 1
    polls.poll_bookie()
    assert [first, second, third, fourth, fifth] == again
    assert [] == [words for _, what, words in loop.later if what == polls.expire]
