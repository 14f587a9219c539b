"""Status codes: numbers of both protocols, and the errors they stand for."""

from __future__ import annotations

import pytest

from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    DirectoryInUse,
    InvalidArgument,
    SyncFailed,
    WriteFailed,
)
from bkstore.wire.status_codes import Status, status_for_error
from bkstore.wire.v3_schema import PLAIN
from tests.docs.format_pages import shown_text


def test_the_table_is_that_of_the_page() -> None:
    """Names, numbers and errors are those that the page lists."""
    shown = [line.split() for line in shown_text("wire.md", "status").splitlines()]

    assert shown == [
        [s.name, str(s.v2), str(s.v3), "-" if s.error is None else s.error.__name__] for s in Status
    ]


def test_v3_numbers_are_the_schemas() -> None:
    """The table has each status code of the protobuf schema, with its number."""
    declared = PLAIN.Response.DESCRIPTOR.fields_by_name["status"].enum_type.values

    assert {value.name: value.number for value in declared} == {s.name: s.v3 for s in Status}


@pytest.mark.parametrize("status", list(Status), ids=lambda s: s.name)
def test_there_and_back(status: Status) -> None:
    """Numbers give their status; the error that a client raises gives the same answer again."""
    assert status is Status.from_v2(status.v2)
    assert status is Status.from_v3(status.v3)
    if status.error is None:
        status.raise_if_error("nothing")
    else:
        with pytest.raises(status.error, match=f"^a read: the bookie answered {status.name}$") as e:
            status.raise_if_error("a read")

        assert status is status_for_error(e.value)


def test_unknown_numbers() -> None:
    """A number of the other protocol, or of none, is damage."""
    with pytest.raises(CorruptionError, match="offset 4: 402 is not a status code of v2"):
        Status.from_v2(402, 4)
    with pytest.raises(CorruptionError, match="1 is not a status code of v3"):
        Status.from_v3(1)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgument("x"), Status.EBADREQ),
        (CorruptionError("f", 0, "x"), Status.EIO),
        (WriteFailed("f", OSError(28, "full")), Status.EIO),
        (SyncFailed("f", OSError(5, "io")), Status.EIO),
        (OSError(5, "io"), Status.EIO),
        (DirectoryInUse("x"), Status.EIO),
        (BookieUnavailable("x"), Status.EIO),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_without_a_status_of_their_own(error: OSError, status: Status) -> None:
    """A bad argument is a bad request; what says nothing of the data is EIO, never "not found"."""
    assert status is status_for_error(error)
