"""What the tables say, as the few numbers that the first screen tells.

A fact is None where its table was not given: "not asked" is never shown as zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

DURABILITY = ("no_replica", "below_ack_quorum", "below_write_quorum")
CLASSES = (*DURABILITY, "in_part", "not_judged", "sound")
"""What a ledger's health can be, the worst first. `in_part`: nothing is missing where it was
looked, and some of its bookies are not in the dump."""

_OTHERS = ("placement", "overdue", "bookie_unavailable", "placement_soft")
_ORDER = {name: rank for rank, name in enumerate((*DURABILITY, *_OTHERS))}

Tables = Mapping[str, "pa.Table"]


class Disk(NamedTuple):
    """Bytes of all entry logs. `other` are what no record is: headers and ledgers maps."""

    files: int
    live: int
    garbage: int

    @property
    def other(self) -> int:
        """Bytes of files that belong to no record; 0 where records exceed their files."""
        return max(self.files - self.live - self.garbage, 0)


class Health(NamedTuple):
    """Ledgers of the metadata by class, and how many of them were judged."""

    ledgers: int
    by_class: dict[str, int]

    @property
    def judged(self) -> int:
        """Ledgers of which replicas were counted."""
        return self.ledgers - self.by_class.get("not_judged", 0)


class Facts(NamedTuple):
    """The numbers of the first screen; None where nobody asked.

    `replicas` are entries summed over bookies, `entries` those the metadata tell of,
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


def gather(tables: Tables, source: Mapping[str, Any]) -> Facts:
    """Return the facts. Cost: a pass over some columns of each table, vectorised."""
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
        homeless=_rows(tables, "homeless"),
        holes=_distinct(tables.get("holes")),
        orphans=_distinct(orphans),
        orphan_bytes=None if orphans is None else int(numbers(orphans, "bytes").sum()),
    )


def numbers(table: pa.Table, column: str, absent: int = 0) -> npt.NDArray[Any]:
    """Return a numeric column as an array, `absent` where it is null."""
    import pyarrow.compute as pc

    found = table.column(column)
    values: npt.NDArray[Any] = (
        pc.fill_null(found, absent).to_numpy() if found.null_count else found.to_numpy()
    )
    return values


def ranks(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each violation how bad its category is, 0 the worst; unknown ones last."""
    encoded = table.column("category").combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    known = np.array([_ORDER.get(name, len(_ORDER)) for name in names], np.int64)
    return known[encoded.indices.to_numpy()] if len(names) else np.empty(0, np.int64)


def class_of(health: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each ledger the index of its health in `CLASSES`.

    A replica that is missing makes a ledger `below_write_quorum` at least, whatever else could
    not be judged. One of which no replica could be looked for is not judged at all.
    """
    import pyarrow.compute as pc

    found = np.full(health.num_rows, CLASSES.index("sound"), np.int64)
    with_reason = pc.is_valid(health.column("not_judged")).to_numpy()
    uncounted = pc.is_null(health.column("replicas_due")).to_numpy()
    found[with_reason] = CLASSES.index("in_part")
    nowhere = with_reason & (numbers(health, "replicas_due") == 0)
    found[uncounted | nowhere] = CLASSES.index("not_judged")
    found[numbers(health, "replicas_missing") > 0] = CLASSES.index("below_write_quorum")
    for rank, name in enumerate(DURABILITY):
        same = pc.fill_null(pc.equal(health.column("category"), name), False)
        found[same.to_numpy()] = rank
    return found


def _rows(tables: Tables, name: str) -> int | None:
    return int(tables[name].num_rows) if name in tables else None


def _distinct(table: pa.Table | None) -> int | None:
    return None if table is None else distinct_ledgers(table)


def distinct_ledgers(table: pa.Table) -> int:
    """Return how many ledgers a table is about; rows about none do not count."""
    ids = table.select(["scope_id", "ledger_id"]).drop_null()
    return int(ids.group_by(["scope_id", "ledger_id"]).aggregate([]).num_rows)


def _bookies(tables: Tables, manifest: Any) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    if manifest is not None:
        listed = manifest["bookies"]
        unread = tuple((str(b["id"]), _reason(b)) for b in listed if not b["read"])
        return len(listed), unread
    return _rows(tables, "bytes_by_bookie"), ()


def _reason(bookie: Mapping[str, Any]) -> str:
    """Return why a bookie was not read, without the words that say so once more."""
    return str(bookie["reason"]).removeprefix(f"bookie {bookie['id']} was not read: ")


def _findings(tables: Tables, manifest: Any) -> tuple[int | None, int | None]:
    if "findings" in tables:
        severity = Counter(tables["findings"].column("severity").to_pylist())
        return severity["damage"], severity.total() - severity["damage"]
    if manifest is not None:
        listed = manifest["bookies"]
        # Bookies that were not read count no findings of their own.
        damage = sum(max(b["damage"], not b["read"]) for b in listed)
        return damage, sum(b["oddities"] for b in listed)
    if "bytes_by_bookie" in tables:
        return int(numbers(tables["bytes_by_bookie"], "damage").sum()), None
    return None, None


def _ledgers(tables: Tables) -> int | None:
    rows = _rows(tables, "bytes_by_ledger")
    return rows if rows is not None else _distinct(tables.get("sequences"))


def _replicas(tables: Tables, manifest: Any) -> int | None:
    if manifest is not None and "entries" in manifest["tables"]:
        return int(manifest["tables"]["entries"]["rows"])
    for name, column in (("bytes_by_bookie", "entries"), ("sequences", "entries")):
        if name in tables:
            return int(numbers(tables[name], column).sum())
    return None


def _entries(tables: Tables) -> int | None:
    if "ledger_health" not in tables:
        return None
    last = numbers(tables["ledger_health"], "last_entry_id", -1)
    return int(sum((last[last >= 0] + 1).tolist()))


def _disk(tables: Tables) -> Disk | None:
    if "bytes_by_bookie" not in tables:
        return None
    columns = ("log_file_bytes", "live_bytes", "garbage_bytes")
    return Disk(*(int(numbers(tables["bytes_by_bookie"], name).sum()) for name in columns))


def _health(tables: Tables) -> Health | None:
    if "ledger_health" not in tables:
        return None
    counts = np.bincount(class_of(tables["ledger_health"]), minlength=len(CLASSES)).tolist()
    return Health(sum(counts), {name: n for name, n in zip(CLASSES, counts) if n})


def _violations(tables: Tables) -> dict[str, int] | None:
    if "violations" not in tables:
        return None
    keys = ["category", "scope_id", "ledger_id"]
    ledgers = tables["violations"].select(keys).group_by(keys).aggregate([])
    return dict(sorted(Counter(ledgers.column("category").to_pylist()).items()))
