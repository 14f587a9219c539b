"""Endpoints `bookie/is_ready`, `state`, `state/readonly`, `sanity`: the bookie's condition.

In BookKeeper: `BookieIsReadyService`, `BookieStateService`, `BookieStateReadOnlyService`,
`BookieSanityService`.
"""

from __future__ import annotations

import logging
from threading import Lock

from bkstore.errors import BkstoreError, IllegalOperation, ReadOnlyError
from bkstore.storage.bookie import Bookie
from bkstore.wire.admin import query_parameters
from bkstore.wire.admin.messages import (
    HttpError,
    HttpRequest,
    HttpResponse,
    json_response,
    one_line,
)
from bkstore.wire.admin.operator_endpoints.host_callbacks import Controls

LOG = logging.getLogger("bkstore.wire.admin")

REASON_HEADER = "X-Bkstore-Reason"
"""The header with the reason of a failed sanity test; BookKeeper's body has no member for it."""

_SANITY_WAIT_SECONDS = 5.0
"""Seconds that a sanity test waits for one that is running."""


class HealthEndpoints:
    """Answers whether a bookie runs, is writable and is sane, and makes it read-only."""

    def __init__(self, bookie: Bookie, controls: Controls) -> None:
        self._bookie = bookie
        self._controls = controls
        self._sanity_lock = Lock()

    def check_ready(self, request: HttpRequest) -> HttpResponse:
        """Answer OK while the bookie serves, 503 while it starts, stops, or is closed."""
        if not self._is_running():
            raise HttpError(503, "the bookie is closed")
        stage = self._controls.stage
        if stage != "running":
            raise HttpError(503, f"the bookie is {stage}")
        return HttpResponse.ok_text("OK")

    def show_state(self, request: HttpRequest) -> HttpResponse:
        """Answer whether the bookie runs, and which writes it accepts: while it is read-only, those
        of high priority (of recoveries) may still be."""
        running = self._is_running() and self._controls.stage != "starting"
        can_write = running and self._can_write()
        accepts_all_writes = can_write and not self._controls.read_only()
        return json_response(
            {
                "running": running,
                "readOnly": running and not accepts_all_writes,
                "shuttingDown": self._controls.stage == "stopping",
                "availableForHighPriorityWrites": can_write,
            }
        )

    def _is_running(self) -> bool:
        try:
            self._bookie.ledger_exists(0)  # any call: all raise once it is closed
        except IllegalOperation:
            return False
        return True

    def _can_write(self) -> bool:
        """Return whether no sync of a journal, an entry log or an index has failed."""
        try:
            for write_path in self._bookie.storage.write_paths:
                write_path.check_writable()
        except ReadOnlyError:
            return False
        return not any(journal.has_failed for journal in self._bookie.journals)

    def show_read_only(self, request: HttpRequest) -> HttpResponse:
        """Answer whether writes other than those of recoveries are refused."""
        return json_response({"readOnly": self._is_read_only()})

    def _is_read_only(self) -> bool:
        return self._controls.read_only() or not self._can_write()

    def set_read_only(self, request: HttpRequest) -> HttpResponse:
        """Make the bookie read-only, or writable if possible; answer with the new state."""
        body = query_parameters.parse_json_body(request)
        wanted = None if body is None else body.get("readOnly", False)
        if type(wanted) is not bool:
            raise HttpError(400, 'the body is {"readOnly": true} or {"readOnly": false}')
        set_mode = self._controls.set_read_only
        if set_mode is None:
            raise HttpError(503, "there is no bookie server that could be made read-only")
        set_mode(wanted)
        return self.show_read_only(request)

    def run_sanity_test(self, request: HttpRequest) -> HttpResponse:
        """Answer whether a ledger can be written to this bookie and read, one test at a time. A
        read-only bookie is not tested."""
        test = self._controls.check_sanity
        if test is None:
            raise HttpError(503, "no sanity test is possible: the bookie is in no cluster")
        if self._is_read_only():
            return json_response({"passed": False, "readOnly": True})
        if not self._sanity_lock.acquire(timeout=_SANITY_WAIT_SECONDS):
            raise HttpError(500, "another sanity test did not finish in time")
        reason = None
        try:
            test()
        except (BkstoreError, OSError) as error:
            reason = one_line(str(error)) or type(error).__name__
            LOG.warning("the sanity test failed: %s", error)
        finally:
            self._sanity_lock.release()
        body = json_response({"passed": reason is None, "readOnly": False}).body
        header = (reason or "").encode("ascii", "replace").decode()
        return HttpResponse(200, body, headers={REASON_HEADER: header} if header else {})
