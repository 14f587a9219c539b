"""Ranges of entries: from all bookies at once, in order, whatever is lost, silent or large."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from bkstore.cluster import Client, ClientOptions, Cluster, LedgerHandle
from bkstore.cluster.client import range_reads
from bkstore.cluster.client.many_entries import read_entries_from
from bkstore.cluster.client.workers import Workers
from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
    NoSuchEntry,
)
from bkstore.formats.entry import RecordBatch
from bkstore.testing.factories import ClusterFactory
from tests.cluster.client.calls import Calls
from tests.cluster.client.ensembles import ensemble
from tests.patched_modules import patch_module


@pytest.fixture(params=["one after another", "side by side"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers | None]:
    """Yield how bookies are asked."""
    if request.param == "one after another":
        yield None
        return
    with Workers(8) as made:
        yield made


def _reader(
    cluster: Cluster, workers: Workers | None, ledger: LedgerHandle, **options: bool
) -> tuple[LedgerHandle, Calls]:
    calls = Calls(cluster)
    settings = ClientOptions(**options)  # type: ignore[arg-type]
    client = Client(cluster.store, calls.clients, None, settings, workers=workers)
    return client.open_ledger(ledger.ledger), calls


def _payloads(count: int, seed: int) -> list[bytes]:
    generator = random.Random(seed)
    return [bytes([number % 251]) * generator.choice((0, 1, 40, 3000)) for number in range(count)]


@pytest.mark.parametrize("numbers", [(1, 1, 1), (3, 3, 2), (3, 2, 2), (4, 2, 1), (5, 4, 2)])
@pytest.mark.parametrize("batches", [True, False])
def test_every_range(
    bkstore_cluster: ClusterFactory,
    workers: Workers | None,
    numbers: tuple[int, int, int],
    batches: bool,
) -> None:
    """A range has its entries in order, as single reads have them; replicas that are lost, damaged
    or cut off are made up for by the others, segments of other bookies are read from those."""
    cluster = bkstore_cluster(6)
    ledger = cluster.create_ledger(*numbers)
    data = _payloads(900, sum(numbers))
    ledger.append_many(data[:400])
    cluster.stop(ensemble(ledger)[0])
    ledger.append_many(data[400:])
    for name in cluster.bookies:
        cluster.start(name)
    if numbers[1] > 1:
        first = ledger.metadata.ensemble_at(0)
        cluster.lose(first[1], ledger.ledger, range(50, 70))
        cluster.corrupt(ensemble(ledger)[-1], ledger.ledger, 500 + numbers[0] - 1)
    reader, _ = _reader(cluster, workers, ledger, batch_reads=batches)
    if numbers[1] > 2:
        cluster.partition(ensemble(ledger)[0])

    assert data == [entry.payload for entry in reader.read(0, 899)]
    generator = random.Random(7)
    for _ in range(6):
        start = generator.randrange(900)
        end = generator.randrange(start, 900)
        found = reader.read(start, end)

        assert list(range(start, end + 1)) == [entry.entry_id for entry in found]
        assert data[start : end + 1] == [entry.payload for entry in found]
        assert reader.read_entry(end) == found[-1] == reader._access.read(end)


@pytest.mark.parametrize(
    ("numbers", "method"), [((3, 3, 2), "read_entries"), ((3, 2, 2), "read_many")]
)
def test_few_requests(
    bkstore_cluster: ClusterFactory,
    workers: Workers | None,
    numbers: tuple[int, int, int],
    method: str,
) -> None:
    """Thousands of entries take some calls of each bookie, of each about as many: batches where
    E = W, else single reads in one call."""
    cluster = bkstore_cluster()
    ledger = cluster.create_ledger(*numbers)
    ledger.append_many([b"x"] * 4000)
    reader, calls = _reader(cluster, workers, ledger)
    calls.made.clear()

    assert 4000 == sum(len(entry.payload) for entry in reader.scan(0, 3999))
    for name in cluster.bookies:
        assert set(calls.of(name)) <= {method, "read_many"}
        assert 3 <= len(calls.of(name)) <= 12


def test_a_silent_bookie_is_asked_last(
    bkstore_cluster: ClusterFactory, workers: Workers | None
) -> None:
    """Who gave no answer is not asked again while another has the entries: a time-out is paid for
    what was under way, not for each entry."""
    cluster = bkstore_cluster()
    ledger = cluster.create_ledger(3, 2, 2)
    ledger.append_many([b"x"] * 6000)
    reader, calls = _reader(cluster, workers, ledger)
    silent = ensemble(ledger)[1]

    def fail(bookie: str, method: str) -> None:
        if bookie == silent:
            raise BookieUnavailable("no answer")

    calls.before = fail
    calls.made.clear()

    assert 6000 == len(reader.read(0, 5999))
    assert 1 <= len(calls.of(silent)) <= 4


def test_what_nobody_has(bkstore_cluster: ClusterFactory, workers: Workers | None) -> None:
    """What comes before an entry that is lost is handed out; the error says what each bookie said,
    and no is not the answer where one may still have it."""
    cluster = bkstore_cluster()
    ledger = cluster.create_ledger(3, 2, 2)
    ledger.append_many([b"x"] * 300)
    for name in cluster.bookies:
        cluster.lose(name, ledger.ledger, 200)
    cluster.corrupt(ensemble(ledger)[250 % 3], ledger.ledger, 250)
    cluster.lose(ensemble(ledger)[251 % 3], ledger.ledger, 250)
    reader, _ = _reader(cluster, workers, ledger)
    entries = reader.scan(0, 299)

    assert list(range(200)) == [next(entries).entry_id for _ in range(200)]
    with pytest.raises(NoSuchEntry, match=r"entry 200 of ledger 0: (bookie-\d: NoSuchEntry.*){2}"):
        next(entries)
    with pytest.raises(CorruptionError, match="entry 250 of ledger 0: "):
        reader.read(240, 299)
    cluster.partition(ensemble(ledger)[200 % 3])
    with pytest.raises(BookieUnavailable):
        reader.read(190, 210)


def test_a_range_is_refused_at_once(bkstore_cluster: ClusterFactory) -> None:
    """A range that cannot be is refused by the call, not by the first entry."""
    ledger = bkstore_cluster().create_ledger()
    ledger.append(b"x")
    for first, last in ((0, 1), (1, 0), (-1, 0)):
        with pytest.raises(InvalidArgument):
            ledger.scan(first, last)


@pytest.mark.parametrize("small", [0, 700])
def test_memory_is_bounded(
    bkstore_cluster: ClusterFactory,
    workers: Workers | None,
    monkeypatch: pytest.MonkeyPatch,
    small: int,
) -> None:
    """Of large entries no more is read ahead than two shares of each bookie, whatever is asked
    for. Behind small ones a call for 256 of them may bring as many large ones, once."""
    monkeypatch.setattr(range_reads, "SHARE_BYTES", 20_000)
    cluster = bkstore_cluster()
    share = 20_000 + (256 if small else 16) * 5_036
    for numbers in ((3, 2, 2), (3, 3, 2)):
        ledger = cluster.create_ledger(*numbers)
        data = [b"y"] * small + [bytes(5000)] * 300
        ledger.append_many(data)
        reader, calls = _reader(cluster, workers, ledger)
        calls.bytes = taken = most = 0
        for entry, expected in zip(reader.scan(0, len(data) - 1), data, strict=True):
            assert expected == entry.payload
            taken += len(entry.payload) + 36
            most = max(most, calls.bytes - taken)

        assert 20_000 < most < 2 * 3 * share


def test_shares_follow_the_sizes(
    bkstore_cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once sizes are known, bookies are asked side by side for what fits: the caller's thread does
    not have to ask for the rest of shares that were too large."""
    monkeypatch.setattr(range_reads, "SHARE_BYTES", 20_000)
    cluster = bkstore_cluster()
    with Workers(8) as workers:
        for numbers in ((3, 2, 2), (3, 3, 2)):
            ledger = cluster.create_ledger(*numbers)
            ledger.append_many([bytes(1000)] * 1500)
            reader, calls = _reader(cluster, workers, ledger)
            calls.made.clear()
            calls.by_caller = 0

            assert 1500 == len(reader.read(0, 1499))
            assert 2 * calls.by_caller < len(calls.made) < 200


def test_a_bookie_without_batches(
    bkstore_cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not support batch reads, or falls silent over one, is asked for single entries,
    and for batches again after half a minute; `read_batch` is not affected."""
    cluster = bkstore_cluster()
    ledger = cluster.create_ledger(3, 3, 2)
    ledger.append_many([b"x"] * 300)
    now = [100.0]
    patch_module(monkeypatch, range_reads, "time", monotonic=lambda: now[0])
    for error in (IllegalOperation("what?"), BookieUnavailable("the connection is lost")):
        reader, calls = _reader(cluster, None, ledger)

        def fail(bookie: str, method: str, error: Exception = error) -> None:
            if method == "read_entries":
                raise error

        calls.before = fail

        assert 300 == len(reader.read(0, 299))
        calls.made.clear()

        assert 300 == len(reader.read(0, 299))
        assert {"read_many"} == {method for _, method, _ in calls.made}

        now[0] += 31
        calls.before = lambda bookie, method: None
        calls.made.clear()

        assert 300 == len(reader.read(0, 299))
        assert {"read_entries"} == {method for _, method, _ in calls.made}
        assert 10 == len(reader.read_batch(0, 10))


def test_a_bookie_that_tells_single_entries_only(bkstore_cluster: ClusterFactory) -> None:
    """A client that has no call for many entries is asked for one after another."""
    cluster = bkstore_cluster()
    ledger = cluster.create_ledger(3, 2, 2)
    ledger.append_many([b"x"] * 50)
    reader, calls = _reader(cluster, None, ledger)
    single = {name: _Single(client) for name, client in calls.clients.items()}
    reader._access.context.bookies.update(single)  # type: ignore[attr-defined]
    cluster.lose(ensemble(ledger)[0], ledger.ledger, range(10, 20))
    calls.made.clear()

    assert 50 == len(reader.read(0, 49))
    assert {"read_entry"} == {method for _, method, _ in calls.made}


class _Single:
    """What a bookie's client has to have for reading, and no more."""

    batch_reads = False

    def __init__(self, inner: Calls) -> None:
        self.read_entry = inner.read_entry  # type: ignore[attr-defined]


def test_a_bookie_that_answers_elsewhere(bkstore_cluster: ClusterFactory) -> None:
    """One that was lost in the middle of a share, and came back at another address, tells the
    whole share there: what was not answered at first counts no more."""
    cluster = bkstore_cluster()
    ledger = cluster.create_ledger(3, 2, 2)
    ledger.append_many([b"x"] * 200)
    reader, calls = _reader(cluster, None, ledger)
    name = ensemble(ledger)[0]
    moving = _Moving(calls.clients, name)
    access = replace(reader._access.context, bookies=moving)
    reader._access.context = access
    entries = [
        entry
        for entry in range(200)
        if name in reader._access.write_set_of(entry, ensemble(ledger))
    ]
    answers = read_entries_from(reader._access, name, entries, 1 << 20)

    assert {} == answers.errors
    assert entries == sorted(answers.entries)


class _Moving(dict[str, Any]):
    """Bookies of which one loses its connection once, and is elsewhere then."""

    def __init__(self, clients: dict[str, Any], name: str) -> None:
        super().__init__(clients)
        self._there = self[name]
        self[name] = _Lost(self._there)

    def mark_unreachable(self, bookie_id: str) -> None:
        self[bookie_id] = self._there

    def refresh_addresses(self, bookie_ids: Iterable[str]) -> bool:
        return False


class _Lost:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read_many(self, ledger: Any, entries: Any, errors: Any, **options: Any) -> RecordBatch:
        lost = BookieUnavailable("the connection is lost")
        errors.update(dict.fromkeys(list(entries)[3:], lost))
        found: RecordBatch = self._inner.read_many(ledger, entries[:3], errors, **options)
        return found
