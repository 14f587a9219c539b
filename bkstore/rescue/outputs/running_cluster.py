"""Rescued ledgers in a running cluster, under their own ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bkstore.cluster.client.appends.quorum_add import make_sender
from bkstore.cluster.client.bookie_answers import describe_answers
from bkstore.cluster.client.client import Client
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.store.api import Versioned
from bkstore.errors import InvalidArgument, NoSuchLedger, NotEnoughBookies
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.rescue_job import RescueJob, RescueOutput, closed_metadata

_KEPT_FIELDS = ("digest_type", "password", "custom_metadata", "ctime")


class RunningClusterOutput(RescueOutput):
    """Writes ledgers through a `client` to the bookies of its cluster.

    Each ledger gets an ensemble by the client's placement policy, of as many bookies as it had, or
    of all that are writable; quorums that do not fit are lowered. Its metadata are created
    IN_RECOVERY, its entries are sent to their whole write sets as recovery adds, then the metadata
    are closed. So an interrupted rescue can be repeated: it goes on with what is IN_RECOVERY, and
    leaves what is closed. Raises `InvalidArgument` for another ledger of an id, `NotEnoughBookies`
    if a bookie does not take its entries.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._accesses: dict[LedgerId, LedgerAccess | None] = {}

    def begin(self, job: RescueJob) -> None:
        """Check that no other ledger has one of the ids."""
        self._job = job
        self._keys = job.master_keys
        existing = {*self._client.context.store.ledgers()}
        for ledger_id, plan in job.plans.items():
            if ledger_id in existing:
                self._check_same(plan, self._client.context.store.read(ledger_id).metadata)

    def _check_same(self, plan: LedgerPlan, stored: LedgerMetadata) -> None:
        """Raise `InvalidArgument` unless the stored ledger is one that an earlier rescue
        created."""
        wanted = closed_metadata(plan, 0)
        is_same = all(getattr(stored, each) == getattr(wanted, each) for each in _KEPT_FIELDS)
        if stored.closed:
            is_same = is_same and stored.last_entry_id == wanted.last_entry_id
        if not is_same or stored.state == "OPEN":
            raise InvalidArgument(f"the cluster has another ledger {stored.ledger}; it is kept")

    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Send each record to the bookies of its write set."""
        access = self._access_of(plan)
        if access is None:
            return
        metadata = access.metadata
        ensemble = metadata.segments[0].ensemble
        ensemble_size, write_quorum = metadata.ensemble_size, metadata.write_quorum_size
        requests = []
        for index, bookie in enumerate(ensemble):
            in_write_set = (index - records.entries) % ensemble_size < write_quorum
            rows = np.flatnonzero(in_write_set)
            if rows.size:
                requests.append((bookie, make_sender(access, records.take(rows), recovery=True)))
        answers = list(access.call_bookies(requests))
        if any(answer.error is not None for answer in answers):
            raise NotEnoughBookies(f"ledger {metadata.ledger}: {describe_answers(answers)}")

    def _access_of(self, plan: LedgerPlan) -> LedgerAccess | None:
        """Return access to the ledger, which is created unless it is there; None if it is closed:
        an earlier rescue has completed it."""
        ledger_id = plan.metadata.ledger
        if ledger_id in self._accesses:
            return self._accesses[ledger_id]
        store = self._client.context.store
        try:
            versioned = store.read(ledger_id)
        except NoSuchLedger:
            metadata = self._new_metadata(plan)
            versioned = Versioned(metadata, store.create(metadata))
        access = None
        if not versioned.metadata.closed:
            secret = self._job.secrets.secret_of(ledger_id)
            digest_type = secret.digest_type or "DUMMY"  # records are sent as they are
            access = LedgerAccess(
                self._client.context, versioned, secret.password or b"", digest_type
            )
            if secret.password is None and ledger_id in self._keys:
                access.key = self._keys[ledger_id]
        self._accesses[ledger_id] = access
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

    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Close the metadata of all ledgers."""
        for ledger_id, closed in ledgers.items():
            access = self._access_of(self._job.plans[ledger_id])
            if access is not None:
                _close(access, closed)

    def close(self) -> None:
        """Do nothing: the caller closes the client."""


def _close(access: LedgerAccess, closed: LedgerMetadata) -> None:
    """Close a ledger's metadata at its end."""

    def change(metadata: LedgerMetadata) -> LedgerMetadata | None:
        if metadata.closed:
            return None
        last, length = closed.last_entry_id, closed.length
        return replace(metadata, state="CLOSED", last_entry_id=last, length=length)

    access.update(change)
