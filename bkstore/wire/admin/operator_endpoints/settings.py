"""Endpoint `config/server_config`: the bookie's settings, by their names in BookKeeper.

In BookKeeper: `ConfigurationService`, which shows and sets any property of the configuration. Here
the settings in effect are shown, without secrets, and none can be set.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bkstore.storage.bookie import Bookie
from bkstore.wire.admin.messages import HttpRequest, HttpResponse, json_response
from bkstore.wire.admin.operator_endpoints.host_callbacks import Controls

_STORAGE_CLASSES = {
    "sorted": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "interleaved": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "db": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
}


class SettingsEndpoints:
    """Shows the settings of a bookie and of its server."""

    def __init__(self, bookie: Bookie, controls: Controls) -> None:
        self._bookie = bookie
        self._controls = controls

    def show_settings(self, request: HttpRequest) -> HttpResponse:
        """Answer with name -> value, each as text, as in BookKeeper."""
        dirs, storage = self._bookie.directories, self._bookie.storage
        settings: dict[str, object] = {
            **self._controls.settings,
            "bookieId": self._bookie.bookie_id,
            "journalDirectories": _joined_directories(dirs.journal),
            "ledgerDirectories": _joined_directories(dirs.ledger),
            "ledgerStorageClass": _STORAGE_CLASSES[storage.storage],
            "logSizeLimit": storage.options.entry_log_size,
        }
        if dirs.index != dirs.ledger:
            settings["indexDirectories"] = _joined_directories(dirs.index)
        return json_response({name: _setting_text(settings[name]) for name in sorted(settings)})


def _joined_directories(current_dirs: Iterable[Path]) -> str:
    return ",".join(str(current_dir.parent) for current_dir in current_dirs)


def _setting_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
