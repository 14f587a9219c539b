"""The ten paths of a client, over real sockets: both protocols, all storages, one bookie and an
ensemble."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from bkstore.availability import Availability
from bkstore.cluster import Auditor
from bkstore.cluster.client.bookie_client import LacResponse
from bkstore.errors import BookieUnavailable, LedgerFenced, NoSuchLedger
from bkstore.formats.entry import Coder, Entry, encode_explicit_lac, master_key
from bkstore.storage.options import StorageKind
from bkstore.testing.socket_cluster import SocketCluster
from bkstore.wire.client import WireClient
from tests.cluster.client.ensembles import holders
from tests.wire.client.served_bookies import OverSockets

PROTOCOLS = [("v2", False), ("v3", False), ("v3", True)]
STORAGES = ["sorted", "interleaved", "db"]
CODER = Coder("CRC32C", "secret")
KEY = master_key("secret")

everywhere = pytest.mark.parametrize("storage", STORAGES)
by_each_protocol = pytest.mark.parametrize(
    ("protocol", "extended"), PROTOCOLS, ids=["v2", "v3", "extended"]
)


def _record(entry: int) -> bytes:
    return CODER.encode(Entry(7, entry, entry - 1, 3 * entry + 3, b"%03d" % entry))


@everywhere
@by_each_protocol
def test_with_one_bookie(
    tmp_path: Path, storage: StorageKind, protocol: Literal["v2", "v3"], extended: bool
) -> None:
    """Each path does what it does to a bookie in this process."""
    served = OverSockets(tmp_path, storage, protocol, extended=extended, timeout=20)
    client, entries = served.client, np.arange(1, 700)

    assert 0 == client.add_entry(_record(0), KEY)  # 1: create by the first add
    assert KEY == served.bookie.master_key(7)

    payloads = [b"%03d" % entry for entry in entries]
    batch = CODER.encode_batch(7, entries, payloads, lac=entries - 1, length=3)
    client.add_batch(batch, KEY)  # 2: pipelined adds

    assert list(range(700)) == served.bookie.entries(7).tolist()
    assert [_record(entry) for entry in (0, 1, 699)] == [
        client.read_entry(7, entry) for entry in (0, 1, -1)
    ]  # 3: read
    assert batch.records() == client.read_many(7, entries).records()
    if client.batch_reads:  # 4: batch read
        assert batch.first(500).records() == client.read_entries(7, 1, 500).records()
    assert LacResponse(None, _record(699)) == client.read_lac(7)  # 5: read LAC

    body = encode_explicit_lac(7, 699, "CRC32C", "secret")
    client.write_lac(7, body, KEY)  # 6: explicit LAC

    assert body == client.read_lac(7).explicit_lac == served.bookie.explicit_lac(7)
    assert _record(699) == client.read_entry(7, -1, fence=True, master_key=KEY)
    with pytest.raises(LedgerFenced):  # 7: fence and recovery add
        client.add_entry(_record(700), KEY)
    assert 700 == client.add_entry(_record(700), KEY, recovery=True)
    assert Availability.from_entries(range(701)) == client.availability(7)  # 8: list of entries

    served.stop()
    with pytest.raises(BookieUnavailable):
        client.read_entry(7, 0)
    served.start()

    assert _record(700) == client.read_entry(7, -1)  # 10: reconnect; what was there is there
    with pytest.raises(LedgerFenced):
        client.add_entry(_record(701), KEY)

    served.bookie.collect_garbage(list)  # 9: delete; the metadata store has no ledger

    with pytest.raises(NoSuchLedger):
        client.read_entry(7, 0)
    with pytest.raises(NoSuchLedger):
        client.availability(7)
    served.close()


@everywhere
@by_each_protocol
def test_with_an_ensemble(
    tmp_path: Path, storage: StorageKind, protocol: Literal["v2", "v3"], extended: bool
) -> None:
    """A writer, a reader, a recovery and an audit, with a bookie that comes back."""

    class Ours(SocketCluster):
        pass

    Ours.protocol, Ours.extended = protocol, extended
    data = [b"%d" % number * (number % 7) for number in range(300)]
    with Ours.open(tmp_path, 4, storage, timeout=20) as cluster:
        ledger = cluster.create_ledger(3, 3, 2, password=b"secret")
        ledger.append(data[0])
        ledger.append_many(data[1:200])
        first = ledger.metadata.segments[0].ensemble
        cluster.crash(first[0])
        ledger.append_many(data[200:250])

        assert 2 == len(ledger.metadata.segments)

        cluster.start(first[0])
        ledger.append_many(data[250:])
        ledger.write_explicit_lac()
        reader = cluster.client("reader").open_ledger_no_recovery(ledger.ledger, password=b"secret")

        assert 299 == reader.last_add_confirmed
        assert data == [entry.payload for entry in reader.read(0, 299)]
        assert data[10:110] == [entry.payload for entry in reader.read_batch_with_fallback(10, 100)]

        again = cluster.client("other").open_ledger(ledger.ledger, password=b"secret")

        assert 299 == again.metadata.last_entry_id
        with pytest.raises(LedgerFenced):
            ledger.append(b"too late")
        assert set(ledger.metadata.segments[-1].ensemble) == holders(cluster, again, 299)

        report = Auditor(cluster.store, cluster.bookies).run()

        assert [] == list(report.violations)

        cluster.delete_ledger(ledger.ledger)
        cluster.collect_garbage()
        for name in cluster.bookies:
            with pytest.raises(NoSuchLedger):
                cluster.bookies[name].read_entry(ledger.ledger, 0)


def test_a_cluster_is_asked_over_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client of a `SocketCluster` adds goes through the `WireClient`s of its bookies."""
    asked, add = [], WireClient.add_entry

    def noted(wire: WireClient, *record: Any, **how: Any) -> int:
        asked.append(wire.bookie_id)
        return add(wire, *record, **how)

    monkeypatch.setattr(WireClient, "add_entry", noted)
    with SocketCluster.open(tmp_path) as cluster:
        ledger = cluster.create_ledger(3, 3, 3)
        ledger.append(b"one")

        assert sorted(ledger.metadata.segments[0].ensemble) == sorted(asked)
