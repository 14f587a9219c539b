"""The numbers of the first screen; None if a table was not given: "not asked" is never zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.report.findings.health_classes import HEALTH_CLASSES, class_ranks
from bkstore.report.findings.table_columns import Tables, count_ledgers, number_column

if TYPE_CHECKING:
    import pyarrow as pa


class Disk(NamedTuple):
    """Bytes of all entry logs. `other` are headers and ledgers maps."""

    files: int
    live: int
    garbage: int

    @property
    def other(self) -> int:
        """Bytes of files outside of records; 0 if records exceed their files."""
        return max(self.files - self.live - self.garbage, 0)


class Health(NamedTuple):
    """Ledgers of the metadata by class, and how many of them were judged."""

    ledgers: int
    by_class: dict[str, int]

    @property
    def judged(self) -> int:
        """The number of ledgers whose replicas were counted."""
        return self.ledgers - self.by_class.get("not_judged", 0)


class Facts(NamedTuple):
    """The numbers of the first screen, None for those not asked for.

    `replicas` are entries summed over bookies, `entries` those of closed ledgers by the metadata,
    `violations` ledgers by category; `orphans` and `holes` count ledgers.
    """

    bookies: int | None
    unread: tuple[tuple[str, str], ...]
    damage: int | None
    oddities: int | None
    metadata: str | None
    ledgers: int | None
    replicas: int | None
    entries: int | None
    disk: Disk | None
    health: Health | None
    violations: dict[str, int] | None
    homeless: int | None
    holes: int | None
    orphans: int | None
    orphan_bytes: int | None


def gather_facts(tables: Tables, source: Mapping[str, Any]) -> Facts:
    """Return the facts. Cost: a vectorized pass over some columns of each table."""
    manifest = source.get("manifest")
    bookies, unread = _bookies(tables, manifest)
    damage, oddities = _findings(tables, manifest)
    metadata = source.get("metadata")
    orphans = tables.get("orphans")
    return Facts(
        bookies=bookies,
        unread=unread,
        damage=damage,
        oddities=oddities,
        metadata=None if metadata is None else str(metadata),
        ledgers=_ledgers(tables),
        replicas=_replicas(tables, manifest),
        entries=_entries(tables),
        disk=_disk(tables),
        health=_health(tables),
        violations=_violations(tables),
        homeless=_row_count(tables, "homeless"),
        holes=_count_distinct_ledgers(tables.get("holes")),
        orphans=_count_distinct_ledgers(orphans),
        orphan_bytes=None if orphans is None else int(number_column(orphans, "bytes").sum()),
    )


def _row_count(tables: Tables, name: str) -> int | None:
    return int(tables[name].num_rows) if name in tables else None


def _count_distinct_ledgers(table: pa.Table | None) -> int | None:
    return None if table is None else count_ledgers(table)


def _bookies(tables: Tables, manifest: Any) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    if manifest is not None:
        unread = [bookie for bookie in manifest["bookies"] if not bookie["read"]]
        reasons = tuple((str(bookie["id"]), _reason(bookie)) for bookie in unread)
        return len(manifest["bookies"]), reasons
    return _row_count(tables, "bytes_by_bookie"), ()


def _reason(bookie: Mapping[str, Any]) -> str:
    """Return why a bookie was not read, without the prefix that repeats it."""
    return str(bookie["reason"]).removeprefix(f"bookie {bookie['id']} was not read: ")


def _findings(tables: Tables, manifest: Any) -> tuple[int | None, int | None]:
    if "findings" in tables:
        severity = Counter(tables["findings"].column("severity").to_pylist())
        return severity["damage"], severity.total() - severity["damage"]
    if manifest is not None:
        bookies = manifest["bookies"]
        # A bookie that was not read has no findings of its own and counts as one.
        damage = sum(max(bookie["damage"], not bookie["read"]) for bookie in bookies)
        return damage, sum(bookie["oddities"] for bookie in bookies)
    if "bytes_by_bookie" in tables:
        return int(number_column(tables["bytes_by_bookie"], "damage").sum()), None
    return None, None


def _ledgers(tables: Tables) -> int | None:
    rows = _row_count(tables, "bytes_by_ledger")
    return rows if rows is not None else _count_distinct_ledgers(tables.get("sequences"))


def _replicas(tables: Tables, manifest: Any) -> int | None:
    if manifest is not None and "entries" in manifest["tables"]:
        return int(manifest["tables"]["entries"]["rows"])
    for name, column in (("bytes_by_bookie", "entries"), ("sequences", "entries")):
        if name in tables:
            return int(number_column(tables[name], column).sum())
    return None


def _entries(tables: Tables) -> int | None:
    if "ledger_health" not in tables:
        return None
    last_entries = number_column(tables["ledger_health"], "last_entry_id", -1)
    return int(sum((last_entries[last_entries >= 0] + 1).tolist()))


def _disk(tables: Tables) -> Disk | None:
    if "bytes_by_bookie" not in tables:
        return None
    columns = ("log_file_bytes", "live_bytes", "garbage_bytes")
    return Disk(*(int(number_column(tables["bytes_by_bookie"], name).sum()) for name in columns))


def _health(tables: Tables) -> Health | None:
    if "ledger_health" not in tables:
        return None
    classes = class_ranks(tables["ledger_health"])
    counts = np.bincount(classes, minlength=len(HEALTH_CLASSES)).tolist()
    by_class = {name: ledgers for name, ledgers in zip(HEALTH_CLASSES, counts) if ledgers}
    return Health(len(classes), by_class)


def _violations(tables: Tables) -> dict[str, int] | None:
    if "violations" not in tables:
        return None
    keys = ["category", "scope_id", "ledger_id"]
    ledgers = tables["violations"].select(keys).group_by(keys).aggregate([])
    return dict(sorted(Counter(ledgers.column("category").to_pylist()).items()))
