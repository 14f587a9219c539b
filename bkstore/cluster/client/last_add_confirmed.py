"""The LAC of a ledger as its bookies tell it, to one who does not write it.

Each bookie of the last ensemble tells the record of its last entry, which carries the LAC that
the writer knew, and the explicit LAC. The highest counts, once every acknowledged entry must have
left its mark with a bookie that answered. Source: `client/ReadLastConfirmedOp`,
`client/PendingReadLacOp`.
"""

from __future__ import annotations

from typing import NamedTuple

from bkstore.cluster.client.bookie_answers import Answer, told
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.open_ledger import LedgerAccess
from bkstore.errors import NotEnoughBookies
from bkstore.formats.entry import NO_ENTRY, Entry
from bkstore.schedule import is_covered


class ConfirmedRead(NamedTuple):
    """LAC, the highest explicit LAC (-1 where there is none), and the entries that told."""

    lac: int
    explicit: int
    seen: list[Entry]


def read_confirmed(access: LedgerAccess) -> ConfirmedRead:
    """Ask the bookies of the last ensemble; `NotEnoughBookies` where too few answered.

    The LAC is no lower than the entry before the last segment. The metadata is read again first.
    """
    metadata = access.refresh()
    if metadata.closed:
        return ConfirmedRead(metadata.last_entry_id, NO_ENTRY, [])
    first, ensemble = metadata.segments[-1]
    questions = ((bookie, lambda client: _told_by(access, client)) for bookie in ensemble)
    answers = list(access.ask_each(questions))
    known = [answer.value is not None or answer.negative for answer in answers]
    if not is_covered(known, metadata.write_quorum_size, metadata.ack_quorum_size):
        raise NotEnoughBookies(
            f"ledger {access.ledger}: too few bookies told their LAC: {told(answers)}"
        )
    return _highest(first - 1, answers)


def _told_by(access: LedgerAccess, client: BookieClient) -> tuple[int, Entry | None]:
    body, record = client.read_lac(access.ledger)
    explicit = NO_ENTRY if body is None else access.lac_in(body)
    return explicit, None if record is None else access.verified(record)


def _highest(least: int, answers: list[Answer[tuple[int, Entry | None]]]) -> ConfirmedRead:
    values = [answer.value for answer in answers if answer.value is not None]
    explicit = max((lac for lac, _ in values), default=NO_ENTRY)
    seen = [entry for _, entry in values if entry is not None]
    return ConfirmedRead(max([least, explicit, *(entry.lac for entry in seen)]), explicit, seen)
