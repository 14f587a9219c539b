"""Endpoints `autorecovery/*`: state and control of the cluster's auditors and replication workers.

All state is in the metadata store, which the auditors and workers of other processes watch: the
admin runs none itself. A mark is the record there that a ledger is underreplicated, with the
bookies that miss replicas. In BookKeeper: `AutoRecoveryStatusService`,
`ListUnderReplicatedLedgerService`, `WhoIsAuditorService`, `TriggerAuditService`,
`LostBookieRecoveryDelayService`, `DecommissionService`, `RecoveryBookieService`. A scope is the
upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

from typing import Any

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata.bookie_ids import check_bookie_id
from bkstore.wire.admin import query_parameters
from bkstore.wire.admin.messages import HttpError, HttpRequest, HttpResponse, json_response
from bkstore.wire.admin.operator_endpoints.cluster_store import ClusterStore, require_cluster_store
from bkstore.wire.admin.operator_endpoints.decommissions import Decommissions

_MAX_DELAY_SECONDS = 2**31 - 1


class AutorecoveryEndpoints:
    """Shows and controls the repair of ledgers. Raises `HttpError` without a cluster."""

    def __init__(self, metadata: MetadataStore | None, decommissions: Decommissions) -> None:
        self._metadata = metadata
        self._decommissions = decommissions

    def show_status(self, request: HttpRequest) -> HttpResponse:
        """Answer whether replication is enabled."""
        marks = require_cluster_store(self._metadata).underreplication
        return json_response({"enabled": marks.enabled})

    def set_status(self, request: HttpRequest) -> HttpResponse:
        """Enable or disable replication; answer with the new state."""
        if "enabled" not in request.parameters:
            raise HttpError(400, "missing parameter: enabled=true or enabled=false")
        enable = query_parameters.parse_choice(request, "enabled", ("true", "false")) == "true"
        marks = require_cluster_store(self._metadata).underreplication
        if enable:
            marks.enable()
        elif marks.enabled:  # disabling twice is an error
            marks.disable()
        return self.show_status(request)

    def list_underreplicated(self, request: HttpRequest) -> HttpResponse:
        """Answer with the underreplicated ledgers of a scope, or 404 if there are none; with
        ``printmissingreplica``, as id -> bookies without their replica. ``missingreplica`` lists
        only ledgers that miss the replica on that bookie, ``excludingmissingreplica`` only ledgers
        that do not."""
        scope = query_parameters.parse_scope(request)
        required = request.parameters.get("missingreplica", "").strip()
        excluded = request.parameters.get("excludingmissingreplica", "").strip()
        store = require_cluster_store(self._metadata)
        missing_of_ledger: dict[str, list[str]] = {}
        ledgers = sorted(ledger for ledger in store.marked() or () if ledger.scope == scope)
        for ledger, mark in store.marks_of(ledgers):
            if isinstance(mark, CorruptionError):
                raise mark
            missing = list(mark.missing_bookies)
            if (not required or required in missing) and (not excluded or excluded not in missing):
                missing_of_ledger[str(ledger.ledger)] = missing
        if not missing_of_ledger:
            raise HttpError(404, "no matching ledger is marked as underreplicated")
        if "printmissingreplica" in request.parameters:
            return json_response(missing_of_ledger)
        return json_response([int(ledger) for ledger in missing_of_ledger])

    def show_auditor(self, request: HttpRequest) -> HttpResponse:
        """Answer with the bookie that is the elected auditor, or 404 without one."""
        bookie_id = require_cluster_store(self._metadata).underreplication.auditor()
        if bookie_id is None:
            raise HttpError(404, "no auditor is elected")
        return HttpResponse.ok_text(f"Auditor: {bookie_id}")

    def trigger_audit(self, request: HttpRequest) -> HttpResponse:
        """Make the auditor check all bookies now."""
        _trigger_audit(require_cluster_store(self._metadata))
        return HttpResponse.ok_text("Success trigger audit.")

    def show_recovery_delay(self, request: HttpRequest) -> HttpResponse:
        """Answer how long an auditor waits for a lost bookie, or 404 if that was never set."""
        seconds = require_cluster_store(self._metadata).underreplication.recovery_delay()
        if seconds is None:
            raise HttpError(404, "lostBookieRecoveryDelay was never set in this cluster")
        return HttpResponse.ok_text(f"lostBookieRecoveryDelay value: {seconds}")

    def set_recovery_delay(self, request: HttpRequest) -> HttpResponse:
        """Set how long auditors wait for a lost bookie."""
        seconds = _required_member(request, "delay_seconds")
        if type(seconds) is not int or not 0 <= seconds <= _MAX_DELAY_SECONDS:
            raise HttpError(400, f"delay_seconds is a number from 0 to {_MAX_DELAY_SECONDS}")
        require_cluster_store(self._metadata).underreplication.set_recovery_delay(seconds)
        return HttpResponse.ok_text(f"Success set lostBookieRecoveryDelay to {seconds}")

    def decommission(self, request: HttpRequest) -> HttpResponse:
        """Start to decommission a bookie: trigger an audit, and delete its cookie, if requested,
        once no ledger needs the bookie."""
        bookie_id = _checked_bookie_id(_required_member(request, "bookie_src"))
        body = query_parameters.parse_json_body(request) or {}
        delete_cookie = str(body.get("delete_cookie", False)).lower()
        if delete_cookie not in ("true", "false"):
            raise HttpError(400, "delete_cookie is true or false")
        store = require_cluster_store(self._metadata)
        if bookie_id in (store.registered_bookies() or ()):
            raise HttpError(404, f"bookie {bookie_id} is registered: stop it first")
        _trigger_audit(store)
        self._decommissions.begin(store, bookie_id, delete_cookie == "true")
        return HttpResponse.ok_text(f"Success send decommission Bookie command {bookie_id}")

    def refuse_recovery(self, request: HttpRequest) -> HttpResponse:
        """Refuse, because the admin itself does not copy a bookie's entries to others."""
        raise HttpError(
            404,
            "a served bookie copies no entries to others: run bkstore repair, or replication "
            "workers of BookKeeper and autorecovery/decommission",
        )


def _trigger_audit(store: ClusterStore) -> None:
    """Trigger an audit by writing the recovery delay again, because the auditor watches that.
    Raises `HttpError` with 404, as in BookKeeper, if no auditor would react."""
    marks = store.underreplication
    if not marks.enabled:
        raise HttpError(404, "no audit: autorecovery is disabled in this cluster")
    if marks.auditor() is None:
        raise HttpError(404, "no audit: autorecovery is enabled, and no auditor is elected")
    delay_seconds = marks.recovery_delay()
    marks.set_recovery_delay(0 if delay_seconds is None else delay_seconds)


def _required_member(request: HttpRequest, name: str) -> Any:
    """Return a member of the body. Raises `HttpError` with 404, as in BookKeeper, if missing."""
    body = query_parameters.parse_json_body(request) or {}
    if name not in body:
        raise HttpError(404, f"the body lacks {name}")
    return body[name]


def _checked_bookie_id(value: object) -> str:
    if not isinstance(value, str):
        raise HttpError(400, "bookie_src is a bookie's id")
    try:
        return check_bookie_id(value)
    except InvalidArgument as error:
        raise HttpError(404, str(error)) from None  # as in BookKeeper
