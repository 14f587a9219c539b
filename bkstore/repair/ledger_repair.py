"""The repair of one ledger: locked, planned anew, copied, verified, and its mark removed.

A plan has rows (`ReplicaRepair`): the entries that one bookie of a segment lacks, and the action:
to write them to it (in place), or to give another bookie its place in the ensemble (replace, move).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from bkstore.availability import Availability
from bkstore.cluster.audit import Violation
from bkstore.cluster.client.ledger_access import ClientContext, LedgerAccess
from bkstore.cluster.client.recovery import recover_ledger
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    MetadataUnavailable,
    NoSuchLedger,
    SystemRefused,
)
from bkstore.ids import LedgerId
from bkstore.ledger_metadata.model import SegmentRange
from bkstore.repair.ensemble_replacement import replace_bookies
from bkstore.repair.entry_copier import EntryCopier
from bkstore.repair.ledger_locks import LedgerLocks, RepairLock
from bkstore.repair.planning.byte_rate import ByteRate
from bkstore.repair.planning.finished_segments import finished_part
from bkstore.repair.planning.planner import RepairPlan, RepairPlanner
from bkstore.repair.planning.replica_repairs import RepairStatus, ReplicaRepair
from bkstore.repair.planning.sound_reader import is_open
from bkstore.schedule import expected

_ENDING_ERRORS = (SystemRefused, MetadataUnavailable)
"""Errors that end the repair of all ledgers: this machine, or the metadata store, fails."""

OnCopied = Callable[[int, int], None]
"""Called with the number of entries, and of bytes, that a bookie has received."""


class LedgerRepairer:
    """Repairs ledgers of a cluster, by the plans of `planner`. Thread-safe; each ledger once."""

    def __init__(
        self,
        context: ClientContext,
        planner: RepairPlanner,
        locks: LedgerLocks,
        rate: ByteRate,
        stop: threading.Event,
        on_copied: OnCopied,
    ) -> None:
        self._context = context
        self._planner = planner
        self._options = planner.options
        self._locks = locks
        self._rate = rate
        self._stop = stop
        self._on_copied = on_copied

    def repair(
        self, ledger: LedgerId, planned: Sequence[ReplicaRepair], reported: Iterable[Violation]
    ) -> tuple[list[ReplicaRepair], bool]:
        """Repair a ledger; return its rows with their results, and whether its mark was removed.

        It is planned anew under its lock: what another worker repaired since is not repaired
        again. `planned` are the rows to return if that is not possible. Raises what the metadata
        store raises, and `RepairStopped`; the lock is released in any case.
        """
        lock = self._locks.acquire(ledger)
        if lock is None:
            reason = f"{self._locks.describe_holder(ledger)} has locked the ledger"
            return [_with_result(row, "skipped", reason) for row in planned], False
        try:
            rows = self._repair_locked(ledger, lock, list(reported))
            has_replicas = lock.is_marked and self._has_all_replicas(ledger)
            return rows, has_replicas and self._locks.finish(lock)
        finally:
            self._locks.release(lock)

    def _has_all_replicas(self, ledger: LedgerId) -> bool:
        """Return whether a ledger is closed and lacks nothing, or was deleted."""
        try:
            is_closed = self._context.store.read(ledger).metadata.closed
        except NoSuchLedger:
            return True
        except CorruptionError:
            return False
        return is_closed and self._planner.plan([ledger]).is_clean

    def _repair_locked(
        self, ledger: LedgerId, lock: RepairLock, reported: list[Violation]
    ) -> list[ReplicaRepair]:
        """Plan and repair a ledger; first recover it if the plan says so, and plan again."""
        plan = self._planner.plan([ledger], reported=reported)
        if not plan.repairs:
            return []
        try:
            versioned = self._context.store.read(ledger)
            password = versioned.metadata.password
            given_password = self._options.password or b""
            access = LedgerAccess(
                self._context,
                versioned,
                given_password if password is None else password,
                self._options.digest_type,
            )
        except NoSuchLedger:
            return []
        except _ENDING_ERRORS:
            raise
        except BkstoreError as error:
            return [_with_result(row, "failed", str(error)) for row in plan.repairs]
        results: list[ReplicaRepair] = []
        if any(row.action == "recover" and row.status == "planned" for row in plan.repairs):
            results = self._recover(access, plan.repairs)
            plan = self._planner.plan([ledger], reported=reported)
            # a recovery that failed is planned again, but not tried twice
            if any(row.status == "failed" for row in results):
                plan.repairs = [row for row in plan.repairs if row.action != "recover"]
        return results + self._repair_segments(access, lock, plan)

    def _recover(self, access: LedgerAccess, rows: Iterable[ReplicaRepair]) -> list[ReplicaRepair]:
        """Close the ledger as a client does; return the rows of its last segment with results."""
        rows = [row for row in rows if row.action == "recover"]
        try:
            last = recover_ledger(access).last_entry_id
        except _ENDING_ERRORS:
            raise
        except BkstoreError as error:
            return [_with_result(row, "failed", str(error)) for row in rows]
        return [_with_result(row, "repaired", f"closed at entry {last}") for row in rows]

    def _repair_segments(
        self, access: LedgerAccess, lock: RepairLock, plan: RepairPlan
    ) -> list[ReplicaRepair]:
        """Repair segment after segment: first copy entries to the bookies that lack them, then
        replace bookies."""
        results: list[ReplicaRepair] = []
        copier = EntryCopier(access, self._rate, self._stop, self._on_copied)
        # of an open ledger, the segments that can no longer grow
        finished = finished_part(access.refresh())
        segments = finished.segments_with_ends() if finished.closed else []
        by_first_entry = {segment.first_entry: segment for segment in segments}
        for first_entry, group in groupby(plan.repairs, key=lambda row: row.first_entry):
            segment_rows = list(group)
            segment = by_first_entry.get(first_entry)
            if segment is None:  # the last one of an open ledger: impossible rows only
                results += segment_rows
                continue
            repair = _SegmentRepair(access, copier, segment, plan.registered)
            in_place = [row for row in segment_rows if row.action not in ("replace", "move")]
            moved = [row for row in segment_rows if row.action in ("replace", "move")]
            for row in in_place:
                results += repair.copy_row(row) if row.status == "planned" else [row]
            if moved:
                # checked before the copy and, because that takes long, again before the update
                self._locks.check_held(lock)
                results += repair.replace_bookies(moved, lambda: self._locks.check_held(lock))
        return results


class _SegmentRepair:
    """The repair of one segment; `registered` are the bookies that were registered when it was
    planned (None = unknown)."""

    def __init__(
        self,
        access: LedgerAccess,
        copier: EntryCopier,
        segment: SegmentRange,
        registered: frozenset[str] | None,
    ) -> None:
        self._access = access
        self._copier = copier
        self._segment = segment
        self._registered = registered

    def copy_row(self, row: ReplicaRepair) -> list[ReplicaRepair]:
        """Copy the entries of a row; return it with its result, and a second one for entries of
        which no source returned a sound copy."""
        if row.target is None or not row.missing:
            return [row]
        try:
            copied, errors = self._copier.copy(row.missing, row.target, self._sources(row))
        except _ENDING_ERRORS:
            raise
        except BkstoreError as error:
            return [_with_result(row, "failed", f"{row.target}: {error}")]
        results = []
        if copied:
            # the detail of an uncertain row, that the source may lack them, is settled
            detail = "" if row.is_uncertain else row.detail
            results.append(_with_result(row, "repaired", detail)._replace(missing=copied))
        remaining = row.missing - copied
        if remaining:
            results.append(self._uncopied(row._replace(missing=remaining), errors))
        return results

    def _uncopied(self, row: ReplicaRepair, errors: Mapping[str, BkstoreError]) -> ReplicaRepair:
        """Return the row of entries that no source returned. It is "failed" if a registered bookie
        may still have them, by its error, and the plan did not say that this is uncertain; a later
        repair may succeed. Otherwise it is "impossible"."""
        tried = "; ".join(
            f"{bookie}: {type(error).__name__}: {error}" for bookie, error in sorted(errors.items())
        )
        may_have_them = any(
            is_open(error) and (self._registered is None or bookie in self._registered)
            for bookie, error in errors.items()
        )
        if may_have_them and not row.is_uncertain:
            return _with_result(row, "failed", f"not copied: {tried}")
        row = row._replace(source=None)
        return _with_result(row, "impossible", f"no sound copy: {tried}")

    def _sources(self, row: ReplicaRepair) -> list[tuple[str, Availability]]:
        """Return the bookies that should have entries of a row, the planned source first."""
        first, last, ensemble = self._segment
        write_quorum = self._access.metadata.write_quorum_size
        shares = [
            (bookie, expected(first, last, index, len(ensemble), write_quorum))
            for index, bookie in enumerate(ensemble)
            if bookie != row.target
        ]
        shares = [(bookie, share) for bookie, share in shares if share & row.missing]
        return sorted(shares, key=lambda share: share[0] != row.source)

    def replace_bookies(
        self, rows: Sequence[ReplicaRepair], check_lock: Callable[[], None]
    ) -> list[ReplicaRepair]:
        """Copy all entries to the new bookies, then write the metadata by their version; return the
        rows with their results. Nothing is changed if a new bookie did not take its entries."""
        results: list[ReplicaRepair] = []
        for row in rows:
            results += self.copy_row(row) if row.status == "planned" and row.missing else [row]
        if any(row.status == "failed" for row in results):
            return _undone(results, "another bookie of the segment could not be replaced")
        # Entries without a sound copy stay with the old bookie, which alone may have them.
        changes: dict[int, str] = {}
        kept: dict[int, Availability] = {}
        for row in results:
            if row.target is not None:
                changes[row.bookie_index] = row.target
            if row.status == "impossible":
                kept[row.bookie_index] = kept.get(row.bookie_index, Availability()) | row.missing
        if not changes:
            return results
        try:
            check_lock()
            self._access.update(
                lambda metadata: replace_bookies(metadata, self._segment, changes, kept)
            )
        except _ENDING_ERRORS:
            raise
        except BkstoreError as error:
            return _undone(results, str(error))
        return [
            _with_result(row, "repaired", row.detail) if row.status == "planned" else row
            for row in results
        ]


def _with_result(row: ReplicaRepair, status: RepairStatus, detail: str) -> ReplicaRepair:
    return row._replace(status=status, detail=detail)


def _undone(rows: Iterable[ReplicaRepair], reason: str) -> list[ReplicaRepair]:
    """Return the rows of a segment whose metadata were not changed: none of it is repaired."""
    return [
        _with_result(row, "failed", reason) if row.status in ("planned", "repaired") else row
        for row in rows
    ]
