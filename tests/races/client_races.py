"""Races of two clients for one ledger, in any order of what they ask of store and bookies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bkstore.cluster import LedgerHandle
from bkstore.errors import BadVersion, IllegalOperation, LedgerFenced, NoSuchLedger
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import Segment
from tests.races.two_clients import TwoClients

__all__ = ["CLIENT_RACES"]

CLIENT_RACES: dict[str, Callable[[TwoClients], None]] = {}

ENTRIES = 4


def _race(work: Callable[[TwoClients], None]) -> Callable[[TwoClients], None]:
    CLIENT_RACES[work.__name__] = work
    return work


def _append(handle: LedgerHandle, acknowledged: list[bytes], after: list[bool]) -> None:
    """Append until somebody fences it; nothing may be acknowledged `after` that was done."""
    for number in range(ENTRIES):
        data = b"%d" % len(acknowledged)
        fenced = bool(after)
        try:
            assert len(acknowledged) == handle.append(data), number
        except LedgerFenced:
            return
        assert not fenced
        acknowledged.append(data)


def _recover(here: TwoClients, ledger: LedgerId, done: list[bool], client: int = 1) -> int:
    handle = here.clients[client].open_ledger(ledger)
    done.append(True)
    return handle.metadata.last_entry_id


def _whole(here: TwoClients, ledger: LedgerId, acknowledged: list[bytes], ends: set[int]) -> None:
    """What was acknowledged is there, and all agree on where it ends."""
    metadata = here.stores[0].read(ledger).metadata
    content = here.content(ledger)

    assert metadata.closed
    assert {metadata.last_entry_id} == ends
    assert len(content) - 1 == metadata.last_entry_id
    assert sum(map(len, content)) == metadata.length
    assert acknowledged == content[: len(acknowledged)]
    assert [b"%d" % number for number in range(len(content))] == content


@_race
def create_and_create(here: TwoClients) -> None:
    told = here.run(
        *(
            lambda client=client: [
                client.create_ledger(3, 3, 2, scope=here.scope).ledger for _ in range(2)
            ]
            for client in here.clients
        )
    )

    assert sorted([*told[0], *told[1]]) == here.stores[0].ledgers(here.scope)
    assert 4 == len({*told[0], *told[1]})


@_race
def writer_and_recovery(here: TwoClients) -> None:
    handle = here.ledger()
    acknowledged: list[bytes] = []
    done: list[bool] = []
    told = here.run(
        lambda: _append(handle, acknowledged, done),
        lambda: _recover(here, handle.ledger, done),
    )

    assert told[0] is None
    _whole(here, handle.ledger, acknowledged, {told[1]})


@_race
def change_of_ensemble_and_recovery(here: TwoClients) -> None:
    """The writer lacks a bookie, the recovery another."""
    handle = here.ledger()
    acknowledged = [b"0"]
    handle.append(b"0")
    here.cut(handle, 0, 0)
    here.cut(handle, 1, 1)
    done: list[bool] = []
    told = here.run(
        lambda: _append(handle, acknowledged, done),
        lambda: _recover(here, handle.ledger, done),
    )

    assert told[0] is None
    _whole(here, handle.ledger, acknowledged, {told[1]})


@_race
def recovery_and_recovery(here: TwoClients) -> None:
    """Two recoveries, each without another bookie, close it at one end."""
    handle = here.ledger(4, 3, 2)
    acknowledged = [b"%d" % number for number in range(ENTRIES)]
    handle.append_many(acknowledged)
    here.cut(handle, 0, 0)
    here.cut(handle, 1, 2)
    told = here.run(
        lambda: _recover(here, handle.ledger, [], 0), lambda: _recover(here, handle.ledger, [])
    )

    _whole(here, handle.ledger, acknowledged, set(told))


@_race
def close_and_recovery(here: TwoClients) -> None:
    handle = here.ledger()
    acknowledged: list[bytes] = []
    done: list[bool] = []

    def write_and_close() -> None:
        _append(handle, acknowledged, done)
        handle.close()

    told = here.run(write_and_close, lambda: _recover(here, handle.ledger, done))

    assert told[0] is None or isinstance(told[0], LedgerFenced)
    _whole(here, handle.ledger, acknowledged, {told[1]})
    assert told[0] is not None or len(acknowledged) - 1 == told[1]


def _replicated(here: TwoClients, ledger: LedgerId, lost: str) -> str:
    """Replace a bookie in the first segment, as who copies lost entries does; return the new."""
    store = here.stores[1]
    while True:
        metadata, version = store.read(ledger)
        start, ensemble = metadata.segments[0]
        spare = sorted(set(here.bookies.bookies) - set(ensemble))[0]
        changed = tuple(spare if bookie == lost else bookie for bookie in ensemble)
        segments = (Segment(start, changed), *metadata.segments[1:])
        try:
            store.write(replace(metadata, segments=segments), version)
        except BadVersion:
            continue
        return spare


def _with_two_segments(here: TwoClients) -> tuple[LedgerHandle, list[bytes], str]:
    """Return a ledger, its entries, and who was lost of its first segment; the writer's next
    request finds that the second one lacks a bookie too."""
    handle = here.ledger()
    acknowledged = [b"0"]
    handle.append(b"0")
    lost = here.cut(handle, 0)
    _append(handle, acknowledged, [])
    here.cut(handle, 0)
    return handle, acknowledged, lost


@_race
def change_of_ensemble_and_replication(here: TwoClients) -> None:
    """Somebody replaces a bookie of an older segment while the writer makes a new one."""
    handle, acknowledged, lost = _with_two_segments(here)
    told = here.run(
        lambda: _append(handle, acknowledged, []), lambda: _replicated(here, handle.ledger, lost)
    )
    segments = here.stores[0].read(handle.ledger).metadata.segments

    assert told[0] is None
    assert 1 + 2 * ENTRIES == len(acknowledged)
    assert told[1] in segments[0].ensemble
    assert 3 == len(segments)
    assert acknowledged == here.content(handle.ledger)


@_race
def recovery_and_replication(here: TwoClients) -> None:
    """Somebody replaces a bookie of an older segment while another closes the ledger."""
    handle, acknowledged, lost = _with_two_segments(here)
    told = here.run(
        lambda: _recover(here, handle.ledger, [], 0), lambda: _replicated(here, handle.ledger, lost)
    )
    segments = here.stores[0].read(handle.ledger).metadata.segments

    assert told[1] in segments[0].ensemble
    assert lost not in segments[0].ensemble
    _whole(here, handle.ledger, acknowledged, {told[0]})


@_race
def change_of_ensemble_and_change(here: TwoClients) -> None:
    """Another writer's change of the same ensemble ends this one, which acknowledges nothing."""
    handle = here.ledger()
    acknowledged = [b"0"]
    handle.append(b"0")
    gone = here.cut(handle, 0)

    def change() -> bool:
        store = here.stores[1]
        metadata, version = store.read(handle.ledger)
        start, ensemble = metadata.segments[-1]
        if gone not in ensemble:  # the writer was first
            return False
        spare = sorted(set(here.bookies.bookies) - set(ensemble))[-1]
        changed = tuple(spare if bookie == gone else bookie for bookie in ensemble)
        try:
            store.write(replace(metadata, segments=(Segment(start, changed),)), version)
        except BadVersion:
            return False
        return True

    told = here.run(lambda: _append(handle, acknowledged, []), change)
    segments = here.stores[0].read(handle.ledger).metadata.segments

    if told[1]:
        assert isinstance(told[0], IllegalOperation)
        assert 1 == len(segments) == len(acknowledged)
    else:
        assert told[0] is None
        assert [0, 1] == [first for first, _ in segments]
        assert acknowledged == here.content(handle.ledger)


@_race
def close_and_delete(here: TwoClients) -> None:
    """A ledger that was deleted is not made again by who closes it."""
    handle = here.ledger()
    handle.append(b"0")
    told = here.run(handle.close, lambda: here.clients[1].delete_ledger(handle.ledger))

    assert told[1] is None
    assert told[0] is None or isinstance(told[0], NoSuchLedger)
    assert [] == here.stores[0].ledgers(here.scope)


@_race
def change_of_ensemble_and_delete(here: TwoClients) -> None:
    handle = here.ledger()
    here.cut(handle, 0)
    told = here.run(
        lambda: handle.append(b"0"), lambda: here.clients[1].delete_ledger(handle.ledger)
    )

    assert told[1] is None
    assert told[0] == 0 or isinstance(told[0], NoSuchLedger)
    assert [] == here.stores[0].ledgers(here.scope)
