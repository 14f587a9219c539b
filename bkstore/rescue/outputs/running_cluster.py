"""Rescued ledgers in a running cluster, under their own ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bkstore.availability import Availability
from bkstore.cluster.client.appends.quorum_add import make_sender
from bkstore.cluster.client.bookie_answers import call_bookie, describe_answers
from bkstore.cluster.client.client import Client
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.store.api import Versioned
from bkstore.errors import InvalidArgument, NoSuchLedger, NotEnoughBookies
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.outputs.placement import rows_of_bookies
from bkstore.rescue.rescue_job import RescueJob, RescueOutput, closed_metadata, length_field
from bkstore.schedule import expected

_KEPT_FIELDS = ("digest_type", "password", "custom_metadata", "ctime")


@dataclass
class _SentLedger:
    """A ledger whose metadata are not closed by this rescue yet, and its length as far as it was
    sent."""

    access: LedgerAccess
    length: int = 0


class RunningClusterOutput(RescueOutput):
    """Writes ledgers through a `client` to the bookies of its cluster.

    Each ledger gets an ensemble by the client's placement policy, of as many bookies as it had, or
    of all that are writable; quorums that do not fit are lowered. Its metadata are created
    IN_RECOVERY, its entries are sent to their whole write sets as recovery adds, then the metadata
    are closed. A rescue that was interrupted can be repeated: of the ledgers that are there
    already, it sends only what their bookies do not list. Raises `InvalidArgument` for another
    ledger of an id, `NotEnoughBookies` if a bookie does not take its entries.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._existing: dict[LedgerId, LedgerMetadata] = {}
        self._unclosed: dict[LedgerId, _SentLedger] = {}
        self._closed: set[LedgerId] = set()
        self._current: LedgerId | None = None

    @property
    def description(self) -> str:
        """See `RescueOutput`."""
        return "cluster"

    def begin(self, job: RescueJob, state: Any = None) -> None:
        """Check that no other ledger has one of the ids."""
        self._job = job
        self._keys = job.master_keys
        store = self._client.context.store
        for ledger_id in sorted({*job.plans} & {*store.ledgers()}):
            stored = store.read(ledger_id).metadata
            self._check_same(job.plans[ledger_id], stored)
            self._existing[ledger_id] = stored
            if stored.closed:
                self._closed.add(ledger_id)

    def _check_same(self, plan: LedgerPlan, stored: LedgerMetadata) -> None:
        """Raise `InvalidArgument` unless the stored ledger is one that an earlier rescue
        created."""
        wanted = closed_metadata(plan, 0)
        is_same = all(getattr(stored, each) == getattr(wanted, each) for each in _KEPT_FIELDS)
        if stored.closed:
            is_same = is_same and stored.last_entry_id == wanted.last_entry_id
        if not is_same or stored.state == "OPEN":
            raise InvalidArgument(f"the cluster has another ledger {stored.ledger}; it is kept")

    def choose_entries(self, plan: LedgerPlan) -> Availability:
        """Return the entries that some bookie of their write sets does not list. Bookies of a
        closed ledger that do not answer had all of their entries when it was closed."""
        stored = self._existing.get(plan.metadata.ledger)
        if stored is None:
            return plan.readable
        missing = _missing_replicas(stored, plan.last_entry, self._list_entries(stored))
        if not stored.closed and plan.last_entry >= 0:
            # The length in its record becomes that of the ledger.
            missing |= Availability.from_ranges([(plan.last_entry, plan.last_entry)])
        return plan.readable & missing

    def _list_entries(self, stored: LedgerMetadata) -> dict[str, Availability]:
        """Return which entries of a ledger its bookies have; without bookies that have them all."""
        listed: dict[str, Availability] = {}
        bookies = self._client.context.bookies
        for bookie in sorted(stored.bookies):
            answer = call_bookie(bookies, bookie, lambda client: client.availability(stored.ledger))
            if answer.value is not None:
                listed[bookie] = answer.value
            elif isinstance(answer.error, NoSuchLedger) or not stored.closed:
                listed[bookie] = Availability()
        return listed

    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Send each record to the bookies of its write set."""
        ledger_id = plan.metadata.ledger
        if ledger_id not in self._unclosed:
            self._unclosed[ledger_id] = _SentLedger(self._open_access(plan))
        self._current = ledger_id
        sent = self._unclosed[ledger_id]
        sent.length = length_field(records, ledger_id)
        requests = [
            (bookie, make_sender(sent.access, records.take(rows), recovery=True))
            for bookie, rows in rows_of_bookies(sent.access.metadata, records.entries)
        ]
        answers = list(sent.access.call_bookies(requests))
        if any(answer.error is not None for answer in answers):
            raise NotEnoughBookies(f"ledger {ledger_id}: {describe_answers(answers)}")

    def _open_access(self, plan: LedgerPlan) -> LedgerAccess:
        """Return access to the ledger, which is created unless it is there."""
        ledger_id, store = plan.metadata.ledger, self._client.context.store
        try:
            versioned = store.read(ledger_id)
        except NoSuchLedger:
            metadata = self._new_metadata(plan)
            versioned = Versioned(metadata, store.create(metadata))
        secret = self._job.secrets.secret_of(ledger_id)
        digest_type = secret.digest_type or "DUMMY"  # records are sent as they are
        access = LedgerAccess(self._client.context, versioned, secret.password or b"", digest_type)
        if secret.password is None and ledger_id in self._keys:
            access.key = self._keys[ledger_id]
        return access

    def _new_metadata(self, plan: LedgerPlan) -> LedgerMetadata:
        """Return metadata IN_RECOVERY, with an ensemble of writable bookies."""
        old, context = plan.metadata, self._client.context
        writable = context.writable_bookies(old.ledger.scope)
        if not writable:
            raise NotEnoughBookies("the cluster has no writable bookie")
        size = min(old.ensemble_size, len(writable))
        write = min(old.write_quorum_size, size)
        ack = min(old.ack_quorum_size, write)
        ensemble = context.placement.new_ensemble(size, write, ack, writable)
        return replace(
            old,
            ensemble_size=size,
            write_quorum_size=write,
            ack_quorum_size=ack,
            segments=(Segment(0, tuple(ensemble)),),
            state="IN_RECOVERY",
            last_entry_id=-1,
            length=0,
        )

    def checkpoint(self) -> Any:
        """Close the metadata of all ledgers whose entries are all there: all but the last one. The
        cluster itself is the state that a later rescue finds."""
        for ledger_id in [each for each in self._unclosed if each != self._current]:
            sent, plan = self._unclosed.pop(ledger_id), self._job.plans[ledger_id]
            _close(sent.access, closed_metadata(plan, sent.length))
            self._closed.add(ledger_id)
        return None

    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Close the metadata of all ledgers, also of those without entries."""
        for ledger_id, closed in ledgers.items():
            if ledger_id in self._closed:
                continue
            sent = self._unclosed.get(ledger_id)
            plan = self._job.plans[ledger_id]
            _close(self._open_access(plan) if sent is None else sent.access, closed)

    def close(self) -> None:
        """Do nothing: the caller closes the client."""


def _missing_replicas(
    metadata: LedgerMetadata, last_entry: int, listed: Mapping[str, Availability]
) -> Availability:
    """Return the entries up to `last_entry` that a listed bookie of their write sets lacks."""
    missing = Availability()
    starts = [segment.first_entry for segment in metadata.segments]
    for segment, next_start in zip(metadata.segments, [*starts[1:], last_entry + 1]):
        first, last = segment.first_entry, min(next_start - 1, last_entry)
        for index, bookie in enumerate(segment.ensemble):
            if bookie in listed and first <= last:
                sizes = (metadata.ensemble_size, metadata.write_quorum_size)
                missing |= expected(first, last, index, *sizes) - listed[bookie]
    return missing


def _close(access: LedgerAccess, closed: LedgerMetadata) -> None:
    """Close a ledger's metadata at its end."""

    def change(metadata: LedgerMetadata) -> LedgerMetadata | None:
        if metadata.closed:
            return None
        last, length = closed.last_entry_id, closed.length
        return replace(metadata, state="CLOSED", last_entry_id=last, length=length)

    access.update(change)
