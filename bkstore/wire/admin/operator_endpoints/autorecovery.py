"""Endpoints `autorecovery/*`: state and control of the cluster's auditors and replication workers.

All state is in the metadata store, which the auditors and workers of other processes watch: bkstore
runs none itself. BookKeeper: `AutoRecoveryStatusService`, `ListUnderReplicatedLedgerService`,
`WhoIsAuditorService`, `TriggerAuditService`, `LostBookieRecoveryDelayService`,
`DecommissionService`, `RecoveryBookieService`.
"""

from __future__ import annotations

from typing import Any

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata.service_info import check_bookie_id
from bkstore.wire.admin import query_parameters
from bkstore.wire.admin.messages import Answer, Refused, Request, json_answer
from bkstore.wire.admin.operator_endpoints.cluster_store import ClusterStore, cluster_of
from bkstore.wire.admin.operator_endpoints.decommissions import Decommissions

_MAX_DELAY_SECONDS = 2**31 - 1


class AutorecoveryEndpoints:
    """Shows and controls the repair of ledgers. Raises `Refused` without a cluster."""

    def __init__(self, metadata: MetadataStore | None, decommissions: Decommissions) -> None:
        self._metadata = metadata
        self._decommissions = decommissions

    def status(self, request: Request) -> Answer:
        """Answer whether replication is enabled."""
        return json_answer({"enabled": cluster_of(self._metadata).underreplication.enabled})

    def set_status(self, request: Request) -> Answer:
        """Enable or disable replication; answer with the new state."""
        if "enabled" not in request.parameters:
            raise Refused(400, "missing parameter: enabled=true or enabled=false")
        enable = query_parameters.choice(request, "enabled", ("true", "false")) == "true"
        marks = cluster_of(self._metadata).underreplication
        if enable:
            marks.enable()
        elif marks.enabled:
            marks.disable()
        return self.status(request)

    def marked(self, request: Request) -> Answer:
        """List underreplicated ledgers; with ``printmissingreplica``, as id -> missing bookies."""
        scope = query_parameters.scope(request)
        required = request.parameters.get("missingreplica", "").strip()
        excluded = request.parameters.get("excludingmissingreplica", "").strip()
        store = cluster_of(self._metadata)
        missing_of_ledger: dict[str, list[str]] = {}
        ledgers = sorted(ledger for ledger in store.marked() or () if ledger.scope == scope)
        for ledger, mark in store.marks_of(ledgers):
            if isinstance(mark, CorruptionError):
                raise mark
            missing = list(mark.missing_bookies)
            if (not required or required in missing) and (not excluded or excluded not in missing):
                missing_of_ledger[str(ledger.ledger)] = missing
        if not missing_of_ledger:
            raise Refused(404, "no matching ledger is marked as underreplicated")
        if "printmissingreplica" in request.parameters:
            return json_answer(missing_of_ledger)
        return json_answer([int(ledger) for ledger in missing_of_ledger])

    def auditor(self, request: Request) -> Answer:
        """Answer with the bookie that is the elected auditor, or 404 without one."""
        bookie_id = cluster_of(self._metadata).underreplication.auditor()
        if bookie_id is None:
            raise Refused(404, "no auditor is elected")
        return Answer.plain(f"Auditor: {bookie_id}")

    def trigger_audit(self, request: Request) -> Answer:
        """Make the auditor check all bookies now."""
        _trigger_audit(cluster_of(self._metadata))
        return Answer.plain("Success trigger audit.")

    def delay(self, request: Request) -> Answer:
        """Answer how long an auditor waits for a lost bookie, or 404 if that was never set."""
        seconds = cluster_of(self._metadata).underreplication.recovery_delay()
        if seconds is None:
            raise Refused(404, "lostBookieRecoveryDelay was never set in this cluster")
        return Answer.plain(f"lostBookieRecoveryDelay value: {seconds}")

    def set_delay(self, request: Request) -> Answer:
        """Set how long auditors wait for a lost bookie."""
        seconds = _required_member(request, "delay_seconds")
        if type(seconds) is not int or not 0 <= seconds <= _MAX_DELAY_SECONDS:
            raise Refused(400, f"delay_seconds is a number from 0 to {_MAX_DELAY_SECONDS}")
        cluster_of(self._metadata).underreplication.set_recovery_delay(seconds)
        return Answer.plain(f"Success set lostBookieRecoveryDelay to {seconds}")

    def decommission(self, request: Request) -> Answer:
        """Start to decommission a bookie: trigger an audit, and delete its cookie, if requested,
        once no ledger needs the bookie."""
        bookie_id = _checked_bookie_id(_required_member(request, "bookie_src"))
        delete_cookie = str(
            (query_parameters.body_object(request) or {}).get("delete_cookie", False)
        ).lower()
        if delete_cookie not in ("true", "false"):
            raise Refused(400, "delete_cookie is true or false")
        store = cluster_of(self._metadata)
        if bookie_id in (store.registered_bookies() or ()):
            raise Refused(404, f"bookie {bookie_id} is registered: stop it first")
        _trigger_audit(store)
        self._decommissions.begin(store, bookie_id, delete_cookie == "true")
        return Answer.plain(f"Success send decommission Bookie command {bookie_id}")

    def recover(self, request: Request) -> Answer:
        """Refuse, because only replication workers copy a bookie's entries to others."""
        raise Refused(
            404,
            "bkstore does not copy entries between bookies: use a replication worker of "
            "BookKeeper, and autorecovery/decommission",
        )


def _trigger_audit(store: ClusterStore) -> None:
    """Trigger an audit by writing the recovery delay again, because the auditor watches that.
    Raises `Refused` with 404, as in BookKeeper, if no auditor would react."""
    marks = store.underreplication
    if not marks.enabled:
        raise Refused(404, "no audit: autorecovery is disabled in this cluster")
    if marks.auditor() is None:
        raise Refused(404, "no audit: autorecovery is enabled, and no auditor is elected")
    delay_seconds = marks.recovery_delay()
    marks.set_recovery_delay(0 if delay_seconds is None else delay_seconds)


def _required_member(request: Request, name: str) -> Any:
    """Return a member of the body. Raises `Refused` with 404, as in BookKeeper, if missing."""
    body = query_parameters.body_object(request) or {}
    if name not in body:
        raise Refused(404, f"the body lacks {name}")
    return body[name]


def _checked_bookie_id(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(400, "bookie_src is a bookie's id")
    try:
        return check_bookie_id(value)
    except InvalidArgument as error:
        raise Refused(404, str(error)) from None
