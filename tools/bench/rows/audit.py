"""Rows: an audit of a cluster, beside the same check entry by entry, and its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bkstore import BookieDir
from bkstore.cluster.audit import DirectoryBookie, EntriesOfLedger
from bkstore.cluster.store.api import MetadataStore
from tools.bench.inputs.audit_cluster import (
    BOOKIES,
    LAYOUTS,
    MIXED,
    Answered,
    AtHand,
    Cluster,
    Columns,
    Layout,
    Missing,
    OneByOne,
    audited,
    by_entry,
    by_entry_in_line,
    directories,
)
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.measure import Case, Context, Fact, Figures, Row, Side

LEDGERS, ENTRIES = 20_000, 500
_LONG = (100_000, 500)
_CHECKOUT = Path(__file__).parents[3]


def _shape(cluster: Cluster) -> str:
    count = cluster.ledgers * cluster.entries
    return (
        f"{cluster.ledgers} closed ledgers, {count} entries, 2-of-3 striped, on {len(BOOKIES)} "
        f"bookies, {len(cluster.lost)} replicas missing"
    )


Check = Callable[[], Missing]


def _case(
    name: str, cluster: Cluster, ours: Check, baselines: dict[str, Check], limit: float | None
) -> Case:
    def facts() -> list[Fact]:
        same = ours() == cluster.lost
        return [Fact("finds what was taken out", "yes" if same else "no", "yes", same)]

    return Case(
        name,
        cluster.ledgers * cluster.entries,
        _shape(cluster),
        Side("sequence groups", ours),
        tuple(Side(f"entry by entry, {how}", run) for how, run in baselines.items()),
        limit,
        facts=facts,
    )


def _cases(
    cluster: Cluster, opened: Callable[[Mapping[str, Layout]], dict[str, DirectoryBookie]]
) -> Iterator[Case]:
    def whole(name: str, store: MetadataStore, bookies: Mapping[str, EntriesOfLedger]) -> Case:
        return _case(name, cluster, lambda: audited(store, bookies), against(store, bookies), None)

    def against(store: MetadataStore, bookies: Mapping[str, EntriesOfLedger]) -> dict[str, Check]:
        return {"in line": lambda: by_entry_in_line(store, bookies)}

    store, answers = AtHand(cluster), {name: Answered(cluster, name) for name in BOOKIES}
    columns = Columns(cluster)
    yield _case("durability check", cluster, columns.missing, against(store, answers), 50)
    slower = {"write_set": lambda: by_entry(store, answers)}
    yield _case("audit", cluster, lambda: audited(store, answers), slower, None)
    yield whole("audit, in line", store, answers)
    yield whole("audit, bytes to be decoded", cluster.store, cluster.bookies())
    yield whole("audit, directories", cluster.store, opened(MIXED))
    for layout in LAYOUTS:
        bookies = opened(dict.fromkeys(BOOKIES, layout))
        yield _in_one_call(f"audit, directories, {layout}", cluster, bookies)


def _in_one_call(name: str, cluster: Cluster, bookies: Mapping[str, EntriesOfLedger]) -> Case:
    one_by_one = {each: OneByOne(bookie) for each, bookie in bookies.items()}
    return Case(
        name,
        cluster.ledgers * cluster.entries,
        _shape(cluster),
        Side("availability_many", lambda: audited(cluster.store, bookies)),
        (Side("availability, a call a ledger", lambda: audited(cluster.store, one_by_one)),),
        4,
    )


@contextmanager
def _audit(context: Context) -> Iterator[Iterator[Case]]:
    cluster = Cluster(context.scaled(LEDGERS), ENTRIES, context.seed)
    with ExitStack() as stack:

        def opened(layouts: Mapping[str, Layout]) -> dict[str, DirectoryBookie]:
            paths = directories(cluster, new_directory(context), layouts)
            return {
                name: DirectoryBookie(stack.enter_context(BookieDir(path)))
                for name, path in paths.items()
            }

        yield _cases(cluster, opened)


def _run(ledgers: int, entries: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.bench.inputs.audit_cluster", str(ledgers), str(entries)]
    done = subprocess.run(command, cwd=_CHECKOUT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def _memory(context: Context) -> Iterator[Iterator[Figures]]:
    def figures(ledgers: int, entries: int) -> Figures:
        def facts() -> list[Fact]:
            found = _run(ledgers, entries)
            return [
                Fact("MiB that the audit adds", round((found["peak"] - found["start"]) / 2**20)),
                Fact("MiB before it, metadata included", round(found["start"] / 2**20)),
                Fact("seconds", round(found["seconds"], 2)),
            ]

        name = f"{ledgers} ledgers of {entries} entries"
        return Figures(name, ledgers * entries, "2-of-3 striped", facts)

    sizes = [(LEDGERS, ENTRIES), (LEDGERS, 100 * ENTRIES), _LONG]
    yield (figures(context.scaled(ledgers), entries) for ledgers, entries in sizes)


ROWS = (
    Row(
        "audit",
        "an audit, ledger metadata to violations",
        "The durability check alone works on columns, as tables of a dump have them; an audit "
        "reads metadata from the store and asks each bookie for each ledger, of objects at hand, "
        "of bytes to be decoded, or of directories (index files, RocksDB). Beside it the same a "
        "ledger at a time with sets of entries, each entry's write set from `schedule.write_set`, "
        "or counted out in the loop (in line). Where all directories are of one layout: the audit "
        "as it is, and with bookies that are asked for each ledger on its own, as it was before "
        "`availability_many`.",
        _audit,
        long=True,
    ),
    Row(
        "audit-memory",
        "memory of an audit",
        "`python -m tools.bench.inputs.audit_cluster` in a process of its own: the highest "
        "resident size before and after the audit. It grows with ledgers and groups, not with "
        "entries.",
        _memory,
        long=True,
    ),
)
