"""What a stream of writes is answered with where some of it fails: each add for itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bkstore.formats.entry import Entry, encode
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import JournalOptions
from bkstore.wire.server.group_sync import GroupSync
from bkstore.wire.server.requests.operations import AddOperation, EncodedResponse
from bkstore.wire.server.rules import BookieRules
from bkstore.wire.status_codes import Status
from tests.wire.server.peer import KEY, record

JOURNAL = JournalOptions(preallocate=64 << 10)


def _add(ledger: int, entry: int, **fields: Any) -> AddOperation:
    body = record(ledger, entry)
    return AddOperation("ADD_ENTRY", 2, lambda status: status.name.encode(), record=body, **fields)


def _adds(*ids: tuple[int, int], **fields: Any) -> list[AddOperation]:
    return [_add(ledger, entry, master_key=KEY, **fields) for ledger, entry in ids]


def _names(answers: Sequence[EncodedResponse]) -> list[str]:
    return [answer.status.name for answer in answers]


def test_a_ledger_in_limbo_beside_others(tmp_path: Path) -> None:
    """Adds to a ledger of which nobody knows whether it is fenced are answered so, each of them,
    and those of other ledgers in the same batch are stored.

    `WriteEntryProcessor` answers EUA to an exception that it has no status for.
    """
    with Bookie.open(tmp_path, "db") as bookie:
        rules = BookieRules(bookie)
        assert ["EOK", "EOK"] == _names(rules.write(_adds((7, 0), (8, 0)))[0])
        bookie.storage.set_limbo(7)
        answers, waits = rules.write(_adds((7, 1), (8, 1), (7, 2), (8, 2), (9, 0)))

        assert ["EUA", "EOK", "EUA", "EOK", "EOK"] == _names(answers)
        assert waits
        assert [[0, 1, 2], [0]] == [bookie.entries(ledger).tolist() for ledger in (8, 9)]


@pytest.mark.parametrize(
    ("fields", "durable"), [({}, False), ({"sync": False}, True), ({"recovery": True}, False)]
)
def test_which_adds_wait_for_a_sync(tmp_path: Path, fields: dict[str, Any], durable: bool) -> None:
    """Adds that ask for it wait for a sync, those with deferred sync do not; what is refused
    waits for nothing."""
    with Bookie.open(tmp_path) as bookie:
        rules = BookieRules(bookie)
        answers, waits = rules.write(_adds((7, 0), **fields))

        assert (["EOK"], not durable) == (_names(answers), waits)
        rules.read_only = True
        assert (["EREADONLY"], False) == (
            _names(rules.write(_adds((7, 1), **fields))[0]),
            rules.write(_adds((7, 1), **fields))[1],
        )
        urgent = rules.write(_adds((7, 2), high_priority=True, **fields))[0]
        assert ["EOK"] == _names(urgent)


def test_adds_of_several_kinds_in_a_stream(tmp_path: Path) -> None:
    """Adds that differ in priority or sync are none of one batch: each is judged by its own."""
    with Bookie.open(tmp_path, "interleaved", journal=JOURNAL) as bookie:
        rules = BookieRules(bookie)
        (deferred,), (synced,) = _adds((7, 0), sync=False), _adds((7, 1))

        assert rules.write([deferred, synced])[1]
        assert rules.write([synced, deferred])[1]
        assert not rules.write([deferred, deferred])[1]
        rules.read_only = True
        (urgent,), (plain,) = _adds((7, 2), high_priority=True), _adds((7, 3))
        found = [_names(rules.write(adds)[0]) for adds in ([urgent, plain], [plain, urgent])]

        assert [["EOK", "EREADONLY"], ["EREADONLY", "EOK"]] == found
        assert [0, 1, 2] == bookie.entries(7).tolist()


def test_ledgers_of_one_scope_have_keys_of_their_own(tmp_path: Path) -> None:
    """In a batch a ledger of another key is refused, and not its neighbors in the scope."""
    with Bookie.open(tmp_path, "interleaved", journal=JOURNAL) as bookie:
        rules = BookieRules(bookie)
        bookie.storage.set_master_key(LedgerId(5, 8), b"x" * 20)

        def scoped(ledger: int, entry: int) -> AddOperation:
            data = encode(Entry(LedgerId(5, ledger), entry, -1, 1, b"x"), "CRC32C")
            return AddOperation("ADD_ENTRY", 3, lambda _: b"", record=data, master_key=KEY)

        adds = [scoped(*ids) for ids in ((7, 0), (8, 0), (9, 0), (8, 1), (7, 1))]

        assert ["EOK", "EUA", "EOK", "EUA", "EOK"] == _names(rules.write(adds)[0])
        assert [0, 1] == bookie.entries(LedgerId(5, 7)).tolist()


class _Delivered:
    """Takes answers, and waits for them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._came = threading.Semaphore(0)

    def __call__(self, answers: Sequence[EncodedResponse]) -> None:
        self.names += _names(answers)
        self._came.release()

    def next(self) -> list[str]:
        """Return all that came, once more has come."""
        assert self._came.acquire(timeout=30)
        return self.names


def test_a_sync_that_fails_unforeseen(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is acknowledged whose sync ended in whatever error: EIO, and the log has it; what
    was refused stays refused, and the next sync is tried."""
    outcomes: list[Any] = [RuntimeError("no sync"), Status.EOK, Status.EREADONLY, MemoryError()]

    def sync() -> Status:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return Status(outcome)

    ok, refused = (_add(7, 0).answer(status) for status in (Status.EOK, Status.EFENCED))
    found = []
    group, to = GroupSync(sync), _Delivered()
    with caplog.at_level(logging.CRITICAL):
        for _ in range(4):
            group.put([ok, refused], to)
            found.append(to.next()[-2:])
    group.close()

    assert [
        ["EIO", "EFENCED"], ["EOK", "EFENCED"], ["EREADONLY", "EFENCED"], ["EIO", "EFENCED"],
    ] == found  # fmt: skip


def test_what_waits_is_delivered_before_the_end() -> None:
    """`close` returns when all that waits is synced and delivered."""
    syncs: list[int] = []

    def sync() -> Status:
        syncs.append(1)
        return Status.EOK

    delivered = [_Delivered() for _ in range(5)]
    group = GroupSync(sync)
    for each in delivered:
        group.put([_add(7, 0).answer(Status.EOK)], each)
    group.close()

    assert [["EOK"]] * 5 == [each.names for each in delivered]
    assert 1 <= len(syncs) <= 5
