"""A synthetic cluster of Pulsar: ledgers that take turns over topics, in rounds.

All ledgers of every fiftieth round are leaked: their topics do not list them. Each topic has a
subscription. Each log of a bookie has a thousand ledgers, of which a bookie has two of three.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bkstore.formats.metadata.json_file import ClusterMetadata, encode_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment, read_owner
from bkstore.offline.analyses.kernels.ledger_facts import extract_facts
from bkstore.offline.analyses.metadata_table import METADATA, Metadata
from bkstore.offline.dump import TABLES
from bkstore.offline.reading.manifest import MANIFEST, encode_manifest
from bkstore.pulsar.metadata_messages import MESSAGES
from bkstore.pulsar.sources.exports import encode_nodes
from bkstore.pulsar.sources.nodes import MANAGED_LEDGERS, NodeValue
from bkstore.tables import LOG_LEDGERS

if TYPE_CHECKING:
    import pyarrow as pa

BOOKIES = ("bookie-1", "bookie-2", "bookie-3")
_ROUNDS, _LEAKED_ROUND = 50, 7
_LEDGERS_PER_LOG = 1000
_CREATED, _READ_AT = 1_700_000_000_000, 1_790_000_000_000
_ROWS_PER_FILE = 1 << 20


def is_leaked(ledger: int, topics: int) -> bool:
    """Return whether no topic lists a ledger."""
    return ledger // topics % _ROUNDS == _LEAKED_ROUND


def _managed_ledger(topic: int) -> str:
    return f"shop/orders-{topic % 20}/persistent/topic-{topic // 8}-partition-{topic % 8}"


def _ledger_metadata(ledger: int, topics: int) -> LedgerMetadata:
    owner = {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": _managed_ledger(ledger % topics).encode(),
    }
    ensemble = tuple(BOOKIES[(ledger + position) % len(BOOKIES)] for position in (0, 1))
    return LedgerMetadata(
        LedgerId.of(ledger),
        2,
        2,
        2,
        (Segment(0, ensemble),),
        state="CLOSED",
        last_entry_id=49_999,
        length=52_428_800,
        digest_type="CRC32C",
        ctime=_CREATED + ledger,
        store_ctime=True,
        custom_metadata=owner,
    )


def pulsar_nodes(ledgers: int, topics: int) -> Iterator[tuple[str, NodeValue]]:
    """Yield the node of each topic, and of its subscription, by path."""
    yield MANAGED_LEDGERS, NodeValue(b"")
    cursor = MESSAGES["ManagedCursorInfo"](cursorsLedgerId=-1, markDeleteLedgerId=3)
    cursor_value = NodeValue(cursor.SerializeToString(), 9, _CREATED)
    for topic in range(topics):
        managed_ledger = MESSAGES["ManagedLedgerInfo"]()
        for ledger in range(topic, ledgers, topics):
            if not is_leaked(ledger, topics):
                created = _CREATED + ledger
                managed_ledger.ledgerInfo.add(
                    ledgerId=ledger, entries=50_000, size=52_428_800, timestamp=created
                )
        path = f"{MANAGED_LEDGERS}/{_managed_ledger(topic)}"
        yield path, NodeValue(managed_ledger.SerializeToString(), 9, _CREATED)
        yield f"{path}/subscription", cursor_value


def write_metadata_file(path: Path, ledgers: int, topics: int) -> None:
    """Write the file of `bkstore metadata export --pulsar`."""
    nodes = encode_nodes(pulsar_nodes(ledgers, topics), _READ_AT, is_complete=True)
    metadata = tuple(_ledger_metadata(ledger, topics) for ledger in range(ledgers))
    path.write_bytes(encode_file(ClusterMetadata(metadata), other_parts={"pulsar": nodes}))


def make_metadata(ledgers: int, topics: int) -> Metadata:
    """Return the ledger metadata as columns, which `read_metadata` would take long to make."""
    import pyarrow as pa

    # Texts are those of a topic's first ledger; the facts, of a ledger with the same ensemble.
    first_ledgers = [_ledger_metadata(topic, topics) for topic in range(max(topics, len(BOOKIES)))]
    owners = [read_owner(metadata.custom_metadata) for metadata in first_ledgers[:topics]]
    facts = [extract_facts(metadata).to_json() for metadata in first_ledgers[: len(BOOKIES)]]
    numbers = np.arange(ledgers)
    constant = {"scope_id": 0, "last_entry_id": 49_999, "length": 52_428_800, "version": 0}
    columns: dict[str, pa.Array] = {
        column: pa.array(np.full(ledgers, value)) for column, value in constant.items()
    }
    columns |= {"ledger_id": pa.array(numbers), "ctime": pa.array(numbers + _CREATED)}
    columns["facts_json"] = _take(facts, numbers % len(BOOKIES))
    columns["state"] = _take(["CLOSED"], np.zeros(ledgers, np.int64))
    for field in owners[0]._fields:
        columns[field] = _take([getattr(owner, field) for owner in owners], numbers % topics)
    present = [column for column in METADATA.names if column in columns]
    return Metadata(pa.table({column: columns[column] for column in present}))


def _take(values: list[str] | list[str | None], numbers: np.typing.NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values).take(pa.array(numbers))


def write_dump(path: Path, ledgers: int) -> None:
    """Write a dump that has only the ledgers of entry logs."""
    files: dict[str, list[dict[str, object]]] = {schema.name: [] for schema in TABLES}
    for number, bookie in enumerate(BOOKIES):
        for first in range(0, ledgers, _ROWS_PER_FILE):
            ids = np.arange(first, min(first + _ROWS_PER_FILE, ledgers))
            is_here = (number - ids) % len(BOOKIES) < 2
            files[LOG_LEDGERS.name].append(_write_log_ledgers(path, bookie, first, ids[is_here]))
    bookies = [
        {"id": bookie, "read": True, "reason": None, "path": bookie, "layout": "rocksdb"}
        | {"directories": {}, "rows": {}, "damage": 0, "oddities": 0}
        for bookie in BOOKIES
    ]
    path.joinpath(MANIFEST).write_bytes(encode_manifest(bookies, files, [], {"length": False}))


def _write_log_ledgers(
    path: Path, bookie: str, first: int, ids: np.typing.NDArray[np.int64]
) -> dict[str, object]:
    """Write a file of the table `log_ledgers`; return its row of the manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = np.zeros(len(ids), np.int64)
    columns = [zeros, ids // _LEDGERS_PER_LOG, zeros, ids, 1000 + ids % 1000]
    names = pa.array([bookie] * len(ids))
    table = pa.table(dict(zip(LOG_LEDGERS.names, [names, *columns])))
    file_path = f"{LOG_LEDGERS.name}/{bookie}-{first}.parquet"
    (path / file_path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.cast(LOG_LEDGERS.to_arrow()), path / file_path)
    size = (path / file_path).stat().st_size
    return {"path": file_path, "bookie": bookie, "rows": len(ids), "bytes": size}
