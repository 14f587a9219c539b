"""The numbers of the first screen; None if a table was not given: "not asked" is never zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.ledger_metadata import LedgerOwners
from bkstore.report.findings.health_classes import HEALTH_CLASSES, class_ranks
from bkstore.report.findings.table_columns import Tables, count_ledgers, number_column
from bkstore.report.findings.topics import Topics, gather_topics

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

    `unread_bookies` are ids and reasons. `replicas` are entries summed over bookies, `entries`
    those of closed ledgers by the metadata, `violations` ledgers by category. `owners` are those
    that the metadata state, None if they state none.
    """

    bookies: int | None
    unread_bookies: tuple[tuple[str, str], ...]
    damage: int | None
    oddities: int | None
    metadata: str | None
    ledgers: int | None
    replicas: int | None
    entries: int | None
    disk: Disk | None
    health: Health | None
    violations: dict[str, int] | None
    homeless_ledgers: int | None
    ledgers_with_holes: int | None
    orphan_ledgers: int | None
    orphan_bytes: int | None
    owners: LedgerOwners | None
    topics: Topics | None


def gather_facts(tables: Tables, source: Mapping[str, Any]) -> Facts:
    """Return the facts. Cost: a vectorized pass over some columns of each table."""
    manifest = source.get("manifest")
    bookies, unread_bookies = _count_bookies(tables, manifest)
    damage, oddities = _count_findings(tables, manifest)
    metadata = source.get("metadata")
    orphans = tables.get("orphans")
    owners: LedgerOwners | None = source.get("owners") or None
    return Facts(
        bookies=bookies,
        unread_bookies=unread_bookies,
        damage=damage,
        oddities=oddities,
        metadata=None if metadata is None else str(metadata),
        ledgers=_count_ledgers_on_bookies(tables),
        replicas=_count_replicas(tables, manifest),
        entries=_count_entries(tables),
        disk=_sum_disk_bytes(tables),
        health=_count_ledgers_by_health(tables),
        violations=_count_ledgers_by_category(tables),
        homeless_ledgers=_count_rows(tables, "homeless"),
        ledgers_with_holes=_count_distinct_ledgers(tables.get("holes")),
        orphan_ledgers=_count_distinct_ledgers(orphans),
        orphan_bytes=None if orphans is None else int(number_column(orphans, "bytes").sum()),
        owners=owners,
        topics=gather_topics(tables, owners),
    )


def _count_rows(tables: Tables, name: str) -> int | None:
    return int(tables[name].num_rows) if name in tables else None


def _count_distinct_ledgers(table: pa.Table | None) -> int | None:
    return None if table is None else count_ledgers(table)


def _count_bookies(tables: Tables, manifest: Any) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    """Return the number of bookies, and (id, reason) of each that was not read."""
    if manifest is not None:
        unread = [bookie for bookie in manifest["bookies"] if not bookie["read"]]
        reasons = tuple((str(bookie["id"]), _reason_not_read(bookie)) for bookie in unread)
        return len(manifest["bookies"]), reasons
    return _count_rows(tables, "bytes_by_bookie"), ()


def _reason_not_read(bookie: Mapping[str, Any]) -> str:
    """Return why a bookie was not read, without the prefix that repeats it."""
    return str(bookie["reason"]).removeprefix(f"bookie {bookie['id']} was not read: ")


def _count_findings(tables: Tables, manifest: Any) -> tuple[int | None, int | None]:
    """Return the numbers of damage and oddities, None for those that no table or manifest has."""
    if "findings" in tables:
        severities = Counter(tables["findings"].column("severity").to_pylist())
        return severities["damage"], severities.total() - severities["damage"]
    if manifest is not None:
        bookies = manifest["bookies"]
        # A bookie that was not read has no findings of its own and counts as one.
        damage = sum(max(bookie["damage"], not bookie["read"]) for bookie in bookies)
        return damage, sum(bookie["oddities"] for bookie in bookies)
    if "bytes_by_bookie" in tables:
        return int(number_column(tables["bytes_by_bookie"], "damage").sum()), None
    return None, None


def _count_ledgers_on_bookies(tables: Tables) -> int | None:
    rows = _count_rows(tables, "bytes_by_ledger")
    return rows if rows is not None else _count_distinct_ledgers(tables.get("sequences"))


def _count_replicas(tables: Tables, manifest: Any) -> int | None:
    if manifest is not None and "entries" in manifest["tables"]:
        return int(manifest["tables"]["entries"]["rows"])  # a row for each entry and bookie
    for name in ("bytes_by_bookie", "sequences"):
        if name in tables:
            return int(number_column(tables[name], "entries").sum())
    return None


def _count_entries(tables: Tables) -> int | None:
    if "ledger_health" not in tables:
        return None
    # The last entry of a ledger that is empty or not closed is -1.
    last_entries = number_column(tables["ledger_health"], "last_entry_id", -1)
    return int(sum((last_entries[last_entries >= 0] + 1).tolist()))


def _sum_disk_bytes(tables: Tables) -> Disk | None:
    if "bytes_by_bookie" not in tables:
        return None
    columns = ("log_file_bytes", "live_bytes", "garbage_bytes")
    return Disk(*(int(number_column(tables["bytes_by_bookie"], name).sum()) for name in columns))


def _count_ledgers_by_health(tables: Tables) -> Health | None:
    """Count the ledgers by class of health; None without that table."""
    if "ledger_health" not in tables:
        return None
    classes = class_ranks(tables["ledger_health"])
    counts = np.bincount(classes, minlength=len(HEALTH_CLASSES)).tolist()
    by_class = {name: ledgers for name, ledgers in zip(HEALTH_CLASSES, counts) if ledgers}
    return Health(len(classes), by_class)


def _count_ledgers_by_category(tables: Tables) -> dict[str, int] | None:
    """Count the distinct ledgers by category of violation; None without that table."""
    if "violations" not in tables:
        return None
    keys = ["category", "scope_id", "ledger_id"]
    ledgers = tables["violations"].select(keys).group_by(keys).aggregate([])
    return dict(sorted(Counter(ledgers.column("category").to_pylist()).items()))
