"""Recovery: ending a ledger whose writer is gone, without losing what it acknowledged.

Order: the metadata says IN_RECOVERY; the last ensemble's bookies are fenced, until no write set
is left that could acknowledge an entry; what lies behind the highest LAC that they tell is read
forward and written again to whole write sets; last entry and length go into the metadata,
CLOSED. Each step may be done by several clients at once, and again after any failure: one of
them closes the ledger, the others take over what it says. Source: `client/LedgerRecoveryOp`,
`client/ReadLastConfirmedOp`, `client/ReadOnlyLedgerHandle`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from bkstore.cluster.client.bookie_answers import told
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.open_ledger import LedgerAccess
from bkstore.cluster.client.appends.quorum_add import QuorumAdd, replacement, with_ensemble
from bkstore.errors import CorruptionError, IllegalOperation, NotEnoughBookies
from bkstore.formats.entry import Entry
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import is_covered

__all__ = ["recover"]

LAST_ENTRY = -1


def recover(access: LedgerAccess) -> LedgerMetadata:
    """Close a ledger and return its metadata; a closed one is left as it is.

    Raises `NotEnoughBookies` where the answers leave it open whether an entry was acknowledged,
    or where an entry finds no A bookies to be written to. The ledger stays IN_RECOVERY then, and
    the next try begins anew. Cost: a read and W writes for each entry behind the LAC.
    """
    metadata = access.update(_begun)
    return metadata if metadata.closed else _Recovery(access, metadata).run()


def _begun(metadata: LedgerMetadata) -> LedgerMetadata | None:
    return replace(metadata, state="IN_RECOVERY") if metadata.state == "OPEN" else None


class _Recovery:
    """One run. `begun` is the metadata at its start: entries are read from its last ensemble.

    Changes of ensemble stay in `changed` until the ledger is closed: another recovery may be
    running, and must find the ensemble that the writer had.
    """

    def __init__(self, access: LedgerAccess, begun: LedgerMetadata) -> None:
        self.access = access
        self.begun = begun
        self.changed = begun
        self.seen: list[Entry] = []

    def run(self) -> LedgerMetadata:
        last = self._fence()
        while (found := self._find(last + 1)) is not None:
            self._write_again(found)
            self.seen = [found]
            last += 1
        length = self.access.length_at(last, self.seen)
        return self._close(last, length)

    def _fence(self) -> int:
        """Fence the last ensemble; return the entry up to which all is known to be confirmed.

        What lies before the last segment was confirmed when the segment was made.
        """
        first, ensemble = self.begun.segments[-1]
        answers = list(self.access.ask_each((bookie, self._fenced) for bookie in ensemble))
        known = [answer.value is not None or answer.negative for answer in answers]
        write, ack = self.begun.write_quorum_size, self.begun.ack_quorum_size
        if not is_covered(known, write, ack):
            raise NotEnoughBookies(
                f"ledger {self.access.ledger}: too few bookies are fenced: {told(answers)}"
            )
        self.seen = [entry for answer in answers for entry in answer.value or []]
        return max([first - 1, *(entry.lac for entry in self.seen)])

    def _fenced(self, client: BookieClient) -> list[Entry]:
        """Fence the ledger at a bookie; return its last entry, nothing if the digest is wrong.

        With a wrong digest it is fenced all the same, and tells no LAC.
        """
        access = self.access
        record = client.read_entry(access.ledger, LAST_ENTRY, fence=True, master_key=access.key)
        try:
            return [access.verified(record)]
        except CorruptionError:
            return []

    def _find(self, entry: int) -> Entry | None:
        """Return an entry if any bookie has it, None if it cannot have been acknowledged.

        That is so when more than W - A bookies do not have it: fewer than A can.
        """
        access = self.access
        answers = []
        for bookie in access.replicas(entry, self.begun.segments[-1].ensemble):
            answer = access.read_from(bookie, entry, fence=True)
            if answer.value is not None:
                return answer.value
            answers.append(answer)
        lacking = sum(answer.negative for answer in answers)
        if lacking > self.begun.write_quorum_size - self.begun.ack_quorum_size:
            return None
        raise NotEnoughBookies(
            f"ledger {access.ledger}: whether entry {entry} was acknowledged is not known: "
            f"{told(answers)}"
        )

    def _write_again(self, found: Entry) -> None:
        """Write an entry to all of its write set: the writer may have reached one bookie only."""
        entry = found.entry_id
        record = self.access.coder.encode(found._replace(lac=entry - 1))

        def change(failed: Sequence[int], refused: Collection[str]) -> tuple[str, ...] | None:
            now = self.changed.segments[-1].ensemble
            chosen = replacement(self.access.context, self.changed, now, failed, refused)
            if chosen is not None:
                self.changed = with_ensemble(self.changed, entry, chosen)
            return chosen

        ensemble = self.changed.segments[-1].ensemble
        QuorumAdd(self.access, entry, record, ensemble, change, recovery=True).run()

    def _close(self, last: int, length: int) -> LedgerMetadata:
        mine = len(self.begun.segments) - 1

        def closed(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if metadata.closed:  # by another recovery, or by the writer
                return None
            if metadata.segments[mine:] != self.begun.segments[mine:]:
                raise IllegalOperation(
                    f"ledger {metadata.ledger}: its ensembles changed during the recovery"
                )
            # Older segments may have had a lost bookie replaced meanwhile.
            return replace(
                metadata,
                state="CLOSED",
                last_entry_id=last,
                length=length,
                segments=(*metadata.segments[:mine], *self.changed.segments[mine:]),
            )

        return self.access.update(closed)
