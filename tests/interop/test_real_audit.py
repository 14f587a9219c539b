"""Our audit over the wire of real bookies: lists where they have them, and where they have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.formats.entry import Coder
from bkstore.network import AuditedBookies
from bkstore.wire.client import WireClient
from tests.interop.bookies import Cluster, Place
from tests.worlds.audits import closed

KEY = b"k" * 20


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_what_real_bookies_say(storage: str, real_cluster: Cluster, tmp_path: Path) -> None:
    """A real bookie that lists entries is judged by its list; one with db storage is told from
    lost data. A ledger that either does not know is lost there."""
    place = Place(real_cluster.new_id(), [tmp_path / "ledgers"], [tmp_path / "journal"])
    bookie = real_cluster.start(place, real_cluster.settings(place, storage))
    name = f"127.0.0.1:{bookie.port}"
    batch = Coder("CRC32C", "pw").encode_batch(7, [0, 1, 2, 3, 5], [b"x"] * 5)
    store = MemoryStore()
    store.register_bookie(name)
    for ledger in (7, 8):
        store.create(closed(ledger, ensemble=(name,)))
    try:
        with WireClient(name, timeout=60.0) as client, AuditedBookies(store, timeout=4.0) as asked:
            client.add_batch(batch, KEY)
            report = Auditor(store, asked, options=AuditOptions(rechecks=0)).run()
    finally:
        bookie.stop()
    found = {row.ledger.ledger: list(row.missing or ()) for row in report.violations if row.ledger}

    if storage == "db":
        assert {8: [0, 1, 2, 3, 4, 5]} == found
        assert [name] == list(report.unlisted)
        assert 1 == report.unlisted[name].ledgers
    else:
        assert {7: [4], 8: [0, 1, 2, 3, 4, 5]} == found
        assert {} == report.unlisted
