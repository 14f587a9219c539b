"""GroupSync: one sync of the journals for the answers to all writes since the last one.

If the sync fails, answers that were prepared as successful become failures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from threading import Condition, Thread

from bkstore.wire.server.requests.operations import EncodedResponse
from bkstore.wire.status_codes import Status

_log = logging.getLogger(__name__)

_Answers = Sequence[EncodedResponse]
_Deliver = Callable[[_Answers], None]


class GroupSync:
    """A thread that syncs the journals and then delivers the answers that waited for it.

    `sync` makes durable what was written before the call, and returns EOK or the status to answer
    instead. Answers that come during a sync wait for the next one: many writers share few syncs,
    and no answer waits for more than two. Connections limit their requests, so also these answers.
    """

    def __init__(self, sync: Callable[[], Status]) -> None:
        self._sync = sync
        self._changed = Condition()
        self._unsynced: list[tuple[_Answers, _Deliver]] = []
        self._is_closing = False
        self._thread = Thread(target=self._run_syncs, name="bkstore-sync", daemon=True)
        self._thread.start()

    def put(self, answers: _Answers, deliver: _Deliver) -> None:
        """Call `deliver` with the answers, from the sync thread, after the next sync."""
        self.put_many([(answers, deliver)])

    def put_many(self, deliveries: Iterable[tuple[_Answers, _Deliver]]) -> None:
        """Call each `deliver` with its answers, from the sync thread, after the next sync."""
        with self._changed:
            self._unsynced += deliveries
            self._changed.notify()

    def close(self) -> None:
        """Sync for and deliver the waiting answers, then end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _run_syncs(self) -> None:
        """Sync again and again, each time for all answers that wait by then, until closed."""
        while True:
            with self._changed:
                while not (self._unsynced or self._is_closing):
                    self._changed.wait()
                group, self._unsynced = self._unsynced, []
            if not group:
                return
            try:
                status = self._sync()
            except Exception:  # noqa: BLE001 - logged, and answered
                _log.exception("the journals could not be synced")
                status = Status.EIO
            for answers, deliver in group:
                deliver(answers if status is Status.EOK else _refuse_unsynced(answers, status))


def _refuse_unsynced(answers: _Answers, status: Status) -> _Answers:
    """Return the answers with each EOK replaced by a refusal with the failed sync's status."""
    return [
        done.operation.refuse(status) if done.status is Status.EOK else done for done in answers
    ]
