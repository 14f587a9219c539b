"""`autorecovery/*`: auditors and replication workers of the cluster, seen and steered.

All of it stands in the metadata store, where auditors and workers of other processes look: bkstore
runs none itself. Upstream: `AutoRecoveryStatusService`, `ListUnderReplicatedLedgerService`,
`WhoIsAuditorService`, `TriggerAuditService`, `LostBookieRecoveryDelayService`,
`DecommissionService`, `RecoveryBookieService`.
"""

from __future__ import annotations

from typing import Any

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata.service_info import check_bookie_id
from bkstore.wire.admin import parameters
from bkstore.wire.admin.messages import Answer, Refused, Request, json_answer
from bkstore.wire.admin.operations.cluster import ClusterStore, cluster_of
from bkstore.wire.admin.operations.decommissions import Decommissions

_LONGEST_DELAY = 2**31 - 1


class AutorecoveryEndpoints:
    """Shows and steers the repair of ledgers. Raises `Refused` where there is no cluster."""

    def __init__(self, metadata: MetadataStore | None, decommissions: Decommissions) -> None:
        self._metadata = metadata
        self._decommissions = decommissions

    # -- on or off

    def status(self, request: Request) -> Answer:
        """Answer whether replication workers may copy."""
        return json_answer({"enabled": cluster_of(self._metadata).underreplication.enabled})

    def set_status(self, request: Request) -> Answer:
        """Let workers copy, or not; answer how it is."""
        if "enabled" not in request.parameters:
            raise Refused(400, "missing parameter: enabled=true or enabled=false")
        wanted = parameters.choice(request, "enabled", ("true", "false")) == "true"
        marks = cluster_of(self._metadata).underreplication
        if wanted:
            marks.enable()
        elif marks.enabled:
            marks.disable()
        return self.status(request)

    # -- marks

    def marked(self, request: Request) -> Answer:
        """Answer with the ids of marked ledgers, or id -> bookies with ``printmissingreplica``."""
        scope = parameters.scope(request)
        with_one = request.parameters.get("missingreplica", "").strip()
        without = request.parameters.get("excludingmissingreplica", "").strip()
        store = cluster_of(self._metadata)
        found: dict[str, list[str]] = {}
        names = sorted(name for name in store.marked() or () if name.scope == scope)
        for name, mark in store.marks_of(names):
            if isinstance(mark, CorruptionError):
                raise mark
            missing = list(mark.missing_bookies)
            if (not with_one or with_one in missing) and (not without or without not in missing):
                found[str(name.ledger)] = missing
        if not found:
            raise Refused(404, "no such ledger is marked as underreplicated")
        if "printmissingreplica" in request.parameters:
            return json_answer(found)
        return json_answer([int(name) for name in found])

    # -- the auditor

    def auditor(self, request: Request) -> Answer:
        """Answer with the bookie whose auditor is elected; 404 without one."""
        found = cluster_of(self._metadata).underreplication.auditor()
        if found is None:
            raise Refused(404, "no auditor is elected")
        return Answer.plain(f"Auditor: {found}")

    def trigger_audit(self, request: Request) -> Answer:
        """Have the auditor look at all bookies now."""
        _start_audit(cluster_of(self._metadata))
        return Answer.plain("Success trigger audit.")

    def delay(self, request: Request) -> Answer:
        """Answer how long an auditor waits for a lost bookie; 404 where that was never set."""
        seconds = cluster_of(self._metadata).underreplication.recovery_delay()
        if seconds is None:
            raise Refused(404, "lostBookieRecoveryDelay was never set in this cluster")
        return Answer.plain(f"lostBookieRecoveryDelay value: {seconds}")

    def set_delay(self, request: Request) -> Answer:
        """Have auditors wait so long for a lost bookie."""
        seconds = _member(request, "delay_seconds")
        if type(seconds) is not int or not 0 <= seconds <= _LONGEST_DELAY:
            raise Refused(400, f"delay_seconds is a number from 0 to {_LONGEST_DELAY}")
        cluster_of(self._metadata).underreplication.set_recovery_delay(seconds)
        return Answer.plain(f"Success set lostBookieRecoveryDelay to {seconds}")

    # -- bookies that go

    def decommission(self, request: Request) -> Answer:
        """Begin to take a bookie out: an audit, then, once no ledger needs it, its cookie."""
        bookie = _bookie(_member(request, "bookie_src"))
        asked = str((parameters.body_object(request) or {}).get("delete_cookie", False)).lower()
        if asked not in ("true", "false"):
            raise Refused(400, "delete_cookie is true or false")
        store = cluster_of(self._metadata)
        if bookie in (store.registered_bookies() or ()):
            raise Refused(404, f"bookie {bookie} is registered: stop it first")
        _start_audit(store)
        self._decommissions.begin(store, bookie, asked == "true")
        return Answer.plain(f"Success send decommission Bookie command {bookie}")

    def recover(self, request: Request) -> Answer:
        """Refuse: copying a bookie's entries to others is work of a replication worker."""
        raise Refused(
            404,
            "bkstore does not copy entries from bookie to bookie: use a replication worker of "
            "BookKeeper, and autorecovery/decommission",
        )


def _start_audit(store: ClusterStore) -> None:
    """Write the recovery delay anew: the auditor watches it, and looks at all bookies then.

    `Refused` with 404, as upstream, where nobody would.
    """
    marks = store.underreplication
    if not marks.enabled:
        raise Refused(404, "no audit: autorecovery is disabled in this cluster")
    if marks.auditor() is None:
        raise Refused(404, "no audit: autorecovery is enabled, and no auditor is elected")
    delay = marks.recovery_delay()
    marks.set_recovery_delay(0 if delay is None else delay)


def _member(request: Request, name: str) -> Any:
    """Return what the body says under a name; 404, as upstream, where it says nothing."""
    body = parameters.body_object(request) or {}
    if name not in body:
        raise Refused(404, f"the body has no {name}")
    return body[name]


def _bookie(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(400, "bookie_src is a bookie's id")
    try:
        return check_bookie_id(value)
    except InvalidArgument as error:
        raise Refused(404, str(error)) from None
