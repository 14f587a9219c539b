"""Read the LAC of a ledger from its bookies, for a client that does not write it.

Each bookie of the last ensemble returns its last entry, with the LAC that the writer knew, and the
explicit LAC. The result is the highest, once so many bookies have answered that each acknowledged
entry is on at least one of them (`is_covered`). Source: `client/ReadLastConfirmedOp`,
`client/PendingReadLacOp`.
"""

from __future__ import annotations

from typing import NamedTuple

from bkstore.cluster.client.bookie_answers import BookieAnswer, describe_answers
from bkstore.cluster.client.bookie_client import BookieClient, LacWaiter
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.errors import NotEnoughBookies
from bkstore.formats.entry import NO_ENTRY, Entry
from bkstore.schedule import is_covered


class LacRead(NamedTuple):
    """The LAC, the highest explicit LAC (-1 if there is none), and the bookies' last entries."""

    lac: int
    explicit_lac: int
    last_entries: list[Entry]


def read_lac(access: LedgerAccess) -> LacRead:
    """Read the metadata again, then ask the bookies of the last ensemble for the LAC: no lower than
    the entry before the last segment. Raises `NotEnoughBookies` if too few bookies answered."""
    metadata = access.refresh()
    if metadata.closed:
        return LacRead(metadata.last_entry_id, NO_ENTRY, [])
    segment_start, ensemble = metadata.segments[-1]
    requests = ((bookie, lambda client: _read_lac_from(access, client)) for bookie in ensemble)
    answers = list(access.call_bookies(requests))
    has_answered = [answer.value is not None or answer.is_not_found for answer in answers]
    if not is_covered(has_answered, metadata.write_quorum_size, metadata.ack_quorum_size):
        raise NotEnoughBookies(
            f"ledger {access.ledger}: too few bookies returned their LAC: "
            f"{describe_answers(answers)}"
        )
    return _highest_lac(segment_start - 1, answers)


def wait_for_advance(access: LedgerAccess, lac: int, seconds: float) -> None:
    """Return when a bookie reports a LAC above `lac`, or after `seconds`; at once if none can wait.

    One bookie is asked, preferably of those that will have the next entries and, with them, the
    LAC. The LAC is not returned: a long poll's answer has no digest, so the caller reads it again.
    """
    _, ensemble = access.metadata.segments[-1]
    # Entry `lac` + 2 is the first one that can state, in its record, a LAC above `lac`.
    next_write_set = access.write_set_of(lac + 2, ensemble)
    others = [bookie for bookie in ensemble if bookie not in next_write_set]
    for bookie in [*next_write_set, *others]:
        answer = access.call_bookie(
            bookie, lambda client: _wait_for_lac_from(access, client, lac, seconds)
        )
        if answer.value:
            return


def _wait_for_lac_from(
    access: LedgerAccess, client: BookieClient, lac: int, seconds: float
) -> bool:
    """Wait until a bookie knows a LAC above `lac`, or for `seconds`; return False at once if this
    client cannot wait for LACs, else True."""
    if not isinstance(client, LacWaiter):
        return False
    client.wait_for_lac(access.ledger, lac, seconds)
    return True


def _read_lac_from(access: LedgerAccess, client: BookieClient) -> tuple[int, Entry | None]:
    """Return a bookie's explicit LAC (-1 if none) and its last entry, both verified."""
    body, record = client.read_lac(access.ledger)
    explicit = NO_ENTRY if body is None else access.decode_lac(body)
    return explicit, None if record is None else access.verify_record(record)


def _highest_lac(min_lac: int, answers: list[BookieAnswer[tuple[int, Entry | None]]]) -> LacRead:
    """Return the highest LAC of the answers, each of which is a bookie's explicit LAC and its last
    entry; at least `min_lac`, which is confirmed because the last segment begins after it."""
    values = [answer.value for answer in answers if answer.value is not None]
    explicit = max((lac for lac, _ in values), default=NO_ENTRY)
    last_entries = [entry for _, entry in values if entry is not None]
    lac = max([min_lac, explicit, *(entry.lac for entry in last_entries)])
    return LacRead(lac, explicit, last_entries)
