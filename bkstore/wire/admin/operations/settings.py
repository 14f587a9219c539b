"""`config/server_config`: what the bookie runs with, as BookKeeper's configuration names it.

Upstream: `ConfigurationService`, which shows every property of the configuration, and sets any.
Here what is in effect is shown, which has no secrets in it, and nothing is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bkstore.storage.bookie import Bookie
from bkstore.wire.admin.messages import Answer, Request, json_answer
from bkstore.wire.admin.operations.controls import Controls

_CLASSES = {
    "sorted": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "interleaved": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "db": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
}


class SettingsEndpoints:
    """Shows the settings of a bookie and of the server beside it."""

    def __init__(self, bookie: Bookie, controls: Controls) -> None:
        self._bookie = bookie
        self._controls = controls

    def shown(self, request: Request) -> Answer:
        """Answer with name -> value, each as text, as upstream."""
        place, storage = self._bookie.place, self._bookie.storage
        settings: dict[str, object] = {
            **self._controls.settings,
            "bookieId": self._bookie.bookie_id,
            "journalDirectories": _directories(place.journal),
            "ledgerDirectories": _directories(place.ledger),
            "ledgerStorageClass": _CLASSES[storage.storage],
            "logSizeLimit": storage.options.entry_log_size,
        }
        if place.index != place.ledger:
            settings["indexDirectories"] = _directories(place.index)
        return json_answer({name: _text(settings[name]) for name in sorted(settings)})


def _directories(currents: Iterable[Path]) -> str:
    return ",".join(str(current.parent) for current in currents)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
