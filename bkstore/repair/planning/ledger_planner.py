"""The plan for one ledger: a repair for each missing replica that the audit and the lists show.

A bookie of a segment is given by its index in the ensemble. It may be departed (not registered, to
be replaced), lack entries, be silent (without an answer) or unlisted (it cannot list its entries):
see `SegmentReplicas`. A segment is misplaced if its ensemble fails the placement policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bkstore.availability import Availability
from bkstore.cluster.placement.policies import PlacementPolicy
from bkstore.counts import join_words
from bkstore.durability.violations import DURABILITY_CATEGORIES, Violation
from bkstore.errors import NotEnoughBookies
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.ledger_metadata.owners import LedgerOwner, read_owner
from bkstore.repair.planning.finished_segments import finished_part
from bkstore.repair.planning.options import RepairOptions
from bkstore.repair.planning.replacement_choice import meet_placement, policy_for
from bkstore.repair.planning.replica_repairs import RepairAction, ReplicaRepair
from bkstore.repair.planning.segment_replicas import SegmentReplicas


@dataclass(frozen=True)
class ClusterBookies:
    """The bookies that are registered (None = unknown), and those of them that take entries. A
    bookie that is not registered, but `is_spared`, may come back soon."""

    registered: frozenset[str] | None
    writable: frozenset[str]
    is_spared: Callable[[str], bool] = lambda _: False

    def is_absent(self, bookie: str) -> bool:
        """Return whether a bookie is known not to be registered."""
        return self.registered is not None and bookie not in self.registered

    def is_departed(self, bookie: str) -> bool:
        """Return whether a bookie is known not to be registered, and is to be replaced."""
        return self.is_absent(bookie) and not self.is_spared(bookie)


@dataclass
class LedgerFindings:
    """What an audit found about one ledger: its violations, the bookies that cannot list their
    entries, each with the reason, and the entries of which a bookie has a damaged copy."""

    violations: Sequence[Violation] = ()
    unlisted: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, Availability] = field(default_factory=dict)


class LedgerPlanner:
    """Plans the repairs of one ledger after the other. Thread-safe."""

    def __init__(
        self, bookies: ClusterBookies, placement: PlacementPolicy, options: RepairOptions
    ) -> None:
        self._bookies = bookies
        self._placement = placement
        self._options = options

    def plan(self, metadata: LedgerMetadata, findings: LedgerFindings) -> list[ReplicaRepair]:
        """Return the repairs of a ledger, sorted; violations of segments that are not in the
        metadata any more are ignored. O(segments x E), plus set operations on groups."""
        finished = finished_part(metadata)
        if metadata.problems():
            return []
        segments = {}
        if finished.closed:
            for segment in finished.segments_with_ends():
                replicas = SegmentReplicas(segment, metadata.write_quorum_size)
                segments[segment.first_entry] = replicas
                self._add_states(replicas, findings)
        misplaced = _add_violations(segments, findings.violations)
        owner = read_owner(metadata.custom_metadata)
        repairs: list[ReplicaRepair] = []
        for first_entry, replicas in segments.items():
            plan = _SegmentPlan(metadata, replicas, owner, findings.damaged)
            repairs += self._plan_segment(plan, first_entry in misplaced)
        repairs += self._plan_recovery(metadata, owner)
        return sorted(repairs, key=lambda repair: repair.sort_key)

    def _add_states(self, replicas: SegmentReplicas, findings: LedgerFindings) -> None:
        """Record which bookies of a segment are not registered, and which cannot list entries."""
        for index, bookie in enumerate(replicas.segment.ensemble):
            if self._bookies.is_departed(bookie):
                replicas.departed.add(index)
            elif self._bookies.is_absent(bookie):
                replicas.silent[index] = "the bookie is not registered since a short time only"
            elif bookie in findings.unlisted:
                replicas.unlisted[index] = findings.unlisted[bookie]

    def _plan_segment(self, plan: _SegmentPlan, is_misplaced: bool) -> Iterator[ReplicaRepair]:
        """Yield the repairs of a segment: entries for bookies that stay, then for new ones."""
        replicas = plan.replicas
        # Bookies that have to be replaced: those that are gone, and read-only ones if allowed.
        replaced = set(replicas.departed)
        if self._options.replace_read_only:
            lacking = (index for index in replicas.lacking if not self._is_writable(plan, index))
            replaced.update(lacking)
        ensemble, reason = self._choose_ensemble(plan, replaced, is_misplaced)
        changed = {
            index
            for index, bookie in enumerate(ensemble)
            if bookie != replicas.segment.ensemble[index]
        }
        # The other bookies are repaired in place.
        for index in sorted(replicas.lacking.keys() - changed - replaced):
            yield from self._plan_write(plan, index)
        for index in sorted(replicas.silent.keys() - changed):
            if not replicas.expected_at(index):
                continue
            yield plan.impossible("write", index, Availability(), replicas.silent[index])
        # New bookies get all entries of the index.
        for index in sorted(changed):
            action: RepairAction = "replace" if index in replaced else "move"
            needed, target = replicas.expected_at(index), ensemble[index]
            include_own = index not in replicas.departed
            yield from plan.copies(action, index, needed, target, include_own=include_own)
        for index in sorted(replaced - changed):
            yield plan.impossible("replace", index, replicas.expected_at(index), reason)
        # No bookie can be moved: one row, of index 0, stands for the segment.
        if is_misplaced and not changed - replaced and reason:
            yield plan.impossible("move", 0, Availability(), reason)

    def _choose_ensemble(
        self, plan: _SegmentPlan, replaced: set[int], is_misplaced: bool
    ) -> tuple[tuple[str, ...], str]:
        """Return the segment's new ensemble, and why bookies could not be replaced, if so."""
        metadata, segment = plan.metadata, plan.replicas.segment
        quorums = metadata.write_quorum_size, metadata.ack_quorum_size
        policy = policy_for(self._placement, metadata.ledger, segment.first_entry)
        ensemble, writable = segment.ensemble, self._bookies.writable
        if replaced:
            try:
                ensemble = policy.replace(ensemble, replaced, *quorums, writable)
            except NotEnoughBookies as error:
                return segment.ensemble, f"no bookie can replace it: {error}"
        if is_misplaced:
            better = meet_placement(policy, ensemble, *quorums, writable)
            if better is None:
                return ensemble, "no choice of bookies meets the placement policy"
            ensemble = better
        return tuple(ensemble), ""

    def _plan_write(self, plan: _SegmentPlan, index: int) -> Iterator[ReplicaRepair]:
        """Yield the repairs of a bookie that lacks entries and stays in the ensemble."""
        bookie, needed = plan.replicas.bookie_at(index), plan.replicas.lacking[index]
        if self._is_writable(plan, index):
            yield from plan.copies("write", index, needed, bookie)
            return
        reason = "the bookie is read-only, so it takes no entries; --replace-read-only replaces it"
        yield plan.impossible("write", index, needed, reason)

    def _is_writable(self, plan: _SegmentPlan, index: int) -> bool:
        return plan.replicas.bookie_at(index) in self._bookies.writable

    def _plan_recovery(
        self, metadata: LedgerMetadata, owner: LedgerOwner
    ) -> Iterator[ReplicaRepair]:
        """Yield a repair for each bookie of an open ledger's last segment that is gone."""
        if metadata.closed:
            return
        first_entry, ensemble = metadata.segments[-1]
        for index, bookie in enumerate(ensemble):
            if not self._bookies.is_departed(bookie):
                continue
            row = ReplicaRepair(
                "recover", "planned", metadata.ledger, first_entry, bookie, index, owner=owner
            )
            if self._options.recover:
                yield row._replace(detail="the ledger is closed first, which fences its writer")
            else:
                reason = "the last segment of an open ledger may still grow; --recover closes it"
                yield row._replace(status="impossible", detail=reason)


@dataclass
class _SegmentPlan:
    """One segment of a ledger that is planned."""

    metadata: LedgerMetadata
    replicas: SegmentReplicas
    owner: LedgerOwner
    damaged: Mapping[str, Availability]

    def _row(self, action: RepairAction, index: int) -> ReplicaRepair:
        ledger, bookie = self.metadata.ledger, self.replicas.bookie_at(index)
        first_entry = self.replicas.first_entry
        return ReplicaRepair(
            action, "planned", ledger, first_entry, bookie, index, owner=self.owner
        )

    def impossible(
        self, action: RepairAction, index: int, missing: Availability, reason: str
    ) -> ReplicaRepair:
        """Return the row of a replica that cannot be repaired."""
        row = self._row(action, index)
        return row._replace(status="impossible", missing=missing, detail=reason)

    def copies(
        self,
        action: RepairAction,
        index: int,
        needed: Availability,
        target: str,
        *,
        include_own: bool = False,
    ) -> Iterator[ReplicaRepair]:
        """Yield the rows for entries that `target` is to receive, one for each source, and one for
        those that no bookie is known to have. With `include_own` the bookie at `index`, which
        `target` replaces, is a source too."""
        unsourced, replicas = self._row(action, index)._replace(target=target), self.replicas
        if not needed:
            yield unsourced._replace(detail="no entries: only the metadata change")
            return
        shares, remaining = replicas.choose_sources(needed, index, include_own=include_own)
        for source, share in shares:
            detail = self._describe_damage(unsourced.bookie, share)
            reason = replicas.reason_unknown(source)
            if reason is not None:
                detail = f"it is not known whether the source has them: {reason}"
            row = unsourced._replace(source=replicas.bookie_at(source), missing=share)
            yield row._replace(detail=detail, is_uncertain=reason is not None)
        if remaining:
            reason = "no sound copy: no bookie that answers has these entries"
            departed = replicas.expected_bookies(remaining, replicas.departed)
            if departed:
                verb = "is" if len(departed) == 1 else "are"
                reason += f"; {join_words(departed)}, which {verb} not registered, may have them"
            yield unsourced._replace(status="impossible", missing=remaining, detail=reason)

    def _describe_damage(self, bookie: str, entries: Availability) -> str:
        """Return a text with the number of the entries of which the bookie has damaged copies; an
        empty one if there are none."""
        damaged = len(self.damaged.get(bookie, Availability()) & entries)
        return f"damaged copies: {damaged} of {len(entries)}" if damaged else ""


def _add_violations(
    segments: dict[int, SegmentReplicas], violations: Iterable[Violation]
) -> set[int]:
    """Add the entries that bookies lack to their segments; return the first entries of the segments
    that fail the placement policy."""
    misplaced = set()
    for violation in violations:
        # no segment begins at -1
        replicas = segments.get(-1 if violation.first_entry is None else violation.first_entry)
        if replicas is None:
            continue
        if violation.category == "placement":
            misplaced.add(replicas.first_entry)
            continue
        ensemble = replicas.segment.ensemble
        if violation.bookie not in ensemble:
            continue
        index = ensemble.index(violation.bookie)
        if violation.category in DURABILITY_CATEGORIES and violation.missing is not None:
            # Several rows may be about one bookie, if the reports of several audits were joined.
            lacking = replicas.lacking.get(index, Availability())
            replicas.lacking[index] = lacking | (violation.missing & replicas.expected_at(index))
        elif violation.category == "bookie_unavailable" and index not in replicas.departed:
            replicas.silent.setdefault(index, violation.detail)
    return misplaced


def findings_by_ledger(violations: Iterable[Violation]) -> dict[LedgerId, list[Violation]]:
    """Return the violations of each ledger."""
    by_ledger: dict[LedgerId, list[Violation]] = {}
    for violation in violations:
        if violation.ledger is not None:
            by_ledger.setdefault(violation.ledger, []).append(violation)
    return by_ledger
