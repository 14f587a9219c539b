"""What a request asks for, by its flags and numbers (`BookieProtoEncoding`)."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.wire import v2, v3
from bkstore.wire.server.requests import v2_requests, v3_requests
from bkstore.wire.server.requests.operations import (
    AddOperation,
    BatchReadOperation,
    Operation,
    ReadOperation,
    WriteLacOperation,
)
from tests.wire.server.peer import KEY, record


def _v3(operation: v3.OperationType, priority: int | None = None, **body: Any) -> Operation:
    request = v3.new_request(operation, 1, body)
    if priority is not None:
        request.header.priority = priority
    return v3_requests.make_operation(v3.decode_request(v3.encode(request)))


def _add(priority: int | None = None, **body: Any) -> AddOperation:
    fields = {"ledgerId": 7, "entryId": 0, "masterKey": KEY, "body": record(7, 0)} | body
    found = _v3(v3.OperationType.ADD_ENTRY, priority, **fields)
    assert isinstance(found, AddOperation)
    return found


@pytest.mark.parametrize(
    ("priority", "urgent"), [(None, False), (0, False), (99, False), (100, True), (101, True)]
)
def test_high_priority(priority: int | None, urgent: bool) -> None:
    """A v3 add is of high priority from 100 on, `HIGH_PRIORITY` of a real client."""
    assert urgent == _add(priority).high_priority


@pytest.mark.parametrize(
    ("fields", "recovery", "sync"),
    [
        ({}, False, True),
        ({"flag": 1}, True, True),
        ({"writeFlags": 0}, False, True),
        ({"writeFlags": 1}, False, False),
        ({"writeFlags": 2}, False, True),
        ({"writeFlags": 3}, False, False),
        ({"flag": 1, "writeFlags": 1}, True, False),
    ],
)
def test_flags_of_adds(fields: dict[str, int], recovery: bool, sync: bool) -> None:
    """`AddFlag` RECOVERY_ADD is 1; of `WriteFlag` bit 1 is DEFERRED_SYNC."""
    found = _add(**fields)

    assert (recovery, sync) == (found.recovery, found.sync)
    assert (record(7, 0), KEY, True) == (found.record, found.master_key, found.is_write)


@pytest.mark.parametrize(
    ("flags", "recovery", "urgent"),
    [(0, False, False), (1, False, False), (2, True, False), (4, False, True), (6, True, True)],
)
def test_flags_of_v2_adds(flags: int, recovery: bool, urgent: bool) -> None:
    """DO_FENCING is 1, RECOVERY_ADD 2, HIGH_PRIORITY 4; all of v2 wait for the sync."""
    message = v2.AddRequest(KEY, record(7, 0), flags)
    found = v2_requests.make_operation(v2.decode_request(b"".join(message.parts())))

    assert isinstance(found, AddOperation)
    assert (recovery, urgent, True) == (found.recovery, found.high_priority, found.sync)


@pytest.mark.parametrize(
    ("fields", "fence", "piggyback", "previous", "time_out", "tells"),
    [
        ({}, False, False, None, None, True),
        ({"flag": 1, "masterKey": KEY}, True, False, None, None, False),
        ({"flag": 2, "previousLAC": 5, "timeOut": 9}, False, True, 5, 9, True),
        ({"previousLAC": 0, "timeOut": 0}, False, False, 0, 0, True),
        ({"flag": 1, "previousLAC": 5}, True, False, None, None, False),
    ],
)
def test_flags_of_reads(
    fields: dict[str, Any],
    fence: bool,
    piggyback: bool,
    previous: int | None,
    time_out: int | None,
    tells: bool,
) -> None:
    """`ReadFlag` FENCE_LEDGER is 1, ENTRY_PIGGYBACK 2; a previous LAC makes it a long poll, unless
    it fences; answers but those of fencing reads tell the LAC."""
    found = _v3(v3.OperationType.READ_ENTRY, ledgerId=7, entryId=3, **fields)

    assert isinstance(found, ReadOperation)
    assert (fence, piggyback, previous, tells) == (
        found.fence,
        found.piggyback,
        found.previous_lac,
        found.needs_lac,
    )
    assert (7, 3, fields.get("masterKey")) == (
        found.ledger_number,
        found.entry_id,
        found.master_key,
    )
    if previous is not None:
        assert time_out == found.timeout_millis


def test_reads_of_v2() -> None:
    """DO_FENCING of v2 is 1; a batch read has its limits."""
    for flags in (0, 1):
        single = v2.ReadRequest(7, 3, flags, KEY if flags else None)
        batch = v2.BatchReadRequest(7, 3, 1, 20, 3000, flags, KEY if flags else None)
        one, many = (
            v2_requests.make_operation(v2.decode_request(b"".join(message.parts())))
            for message in (single, batch)
        )

        assert isinstance(one, ReadOperation)
        assert isinstance(many, BatchReadOperation)
        assert (bool(flags), 7, 3) == (one.fence, one.ledger_number, one.entry_id)
        assert (bool(flags), 7, 3, 20, 3000) == (
            many.fence,
            many.ledger_number,
            many.entry_id,
            many.max_count,
            many.max_size,
        )


def test_explicit_lacs() -> None:
    """Ledger, key and body of a request to keep an explicit LAC."""
    found = _v3(v3.OperationType.WRITE_LAC, ledgerId=7, lac=4, masterKey=KEY, body=b"lac")

    assert isinstance(found, WriteLacOperation)
    assert (7, KEY, b"lac") == (found.ledger_number, found.master_key, found.body)
