"""Rows: an audit of a cluster, compared with the same check entry by entry, and its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bkstore import BookieDir
from bkstore.cluster.audit import AvailabilitySource, DirectoryBookie
from bkstore.cluster.store.api import MetadataStore
from tools.bench.inputs.audit_cluster import (
    BOOKIES,
    LAYOUTS,
    MIXED_LAYOUTS,
    AuditCluster,
    DecodedBookie,
    DecodedStore,
    DurabilityCheck,
    Layout,
    Missing,
    SingleCallBookie,
    find_missing_by_entry,
    find_missing_inline,
    run_audit,
    write_directories,
)
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.measure import BenchmarkRow, Case, Context, Fact, FactCase, TimedSide

LEDGERS, ENTRIES = 20_000, 500
_LONG_SIZE = (100_000, 500)
_CHECKOUT = Path(__file__).parents[3]


def _describe_cluster(cluster: AuditCluster) -> str:
    count = cluster.ledgers * cluster.entries
    return (
        f"{cluster.ledgers} closed ledgers, {count} entries, 2-of-3 striped, on {len(BOOKIES)} "
        f"bookies, {len(cluster.lost)} replicas missing"
    )


FindMissing = Callable[[], Missing]


def _make_case(
    name: str,
    cluster: AuditCluster,
    ours: FindMissing,
    baselines: dict[str, FindMissing],
    limit: float | None,
) -> Case:
    def facts() -> list[Fact]:
        same = ours() == cluster.lost
        return [Fact("finds what was taken out", "yes" if same else "no", "yes", same)]

    return Case(
        name,
        cluster.ledgers * cluster.entries,
        _describe_cluster(cluster),
        TimedSide("sequence groups", ours),
        tuple(TimedSide(f"entry by entry, {method}", check) for method, check in baselines.items()),
        limit,
        facts=facts,
    )


def _cases(
    cluster: AuditCluster,
    open_directories: Callable[[Mapping[str, Layout]], dict[str, DirectoryBookie]],
) -> Iterator[Case]:
    """Yield the durability check alone, then audits with more and more of the real work."""

    def audit_case(
        name: str, store: MetadataStore, bookies: Mapping[str, AvailabilitySource]
    ) -> Case:
        return _make_case(
            name, cluster, lambda: run_audit(store, bookies), inline_baseline(store, bookies), None
        )

    def inline_baseline(
        store: MetadataStore, bookies: Mapping[str, AvailabilitySource]
    ) -> dict[str, FindMissing]:
        return {"in line": lambda: find_missing_inline(store, bookies)}

    store, answers = DecodedStore(cluster), {name: DecodedBookie(cluster, name) for name in BOOKIES}
    columns = DurabilityCheck(cluster)
    yield _make_case(
        "durability check", cluster, columns.missing, inline_baseline(store, answers), 50
    )
    baseline = {"write_set": lambda: find_missing_by_entry(store, answers)}
    yield _make_case("audit", cluster, lambda: run_audit(store, answers), baseline, None)
    yield audit_case("audit, in line", store, answers)
    yield audit_case("audit, bytes to be decoded", cluster.store, cluster.bookies())
    yield audit_case("audit, directories", cluster.store, open_directories(MIXED_LAYOUTS))
    for layout in LAYOUTS:
        bookies = open_directories(dict.fromkeys(BOOKIES, layout))
        yield _batch_call_case(f"audit, directories, {layout}", cluster, bookies)


def _batch_call_case(
    name: str, cluster: AuditCluster, bookies: Mapping[str, AvailabilitySource]
) -> Case:
    one_by_one = {bookie_id: SingleCallBookie(bookie) for bookie_id, bookie in bookies.items()}
    return Case(
        name,
        cluster.ledgers * cluster.entries,
        _describe_cluster(cluster),
        TimedSide("availability_many", lambda: run_audit(cluster.store, bookies)),
        (TimedSide("availability, a call a ledger", lambda: run_audit(cluster.store, one_by_one)),),
        4,
    )


@contextmanager
def _audit_cases(context: Context) -> Iterator[Iterator[Case]]:
    cluster = AuditCluster(context.scaled(LEDGERS), ENTRIES, context.seed)
    with ExitStack() as stack:

        def open_directories(layouts: Mapping[str, Layout]) -> dict[str, DirectoryBookie]:
            paths = write_directories(cluster, new_directory(context), layouts)
            return {
                name: DirectoryBookie(stack.enter_context(BookieDir(path)))
                for name, path in paths.items()
            }

        yield _cases(cluster, open_directories)


def _run_audit_process(ledgers: int, entries: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.bench.inputs.audit_cluster", str(ledgers), str(entries)]
    process = subprocess.run(command, cwd=_CHECKOUT, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(process.stdout)
    return result


@contextmanager
def _memory_figures(context: Context) -> Iterator[Iterator[FactCase]]:
    def figures(ledgers: int, entries: int) -> FactCase:
        def facts() -> list[Fact]:
            result = _run_audit_process(ledgers, entries)
            return [
                Fact("MiB that the audit adds", round((result["peak"] - result["start"]) / 2**20)),
                Fact("MiB before it, metadata included", round(result["start"] / 2**20)),
                Fact("seconds", round(result["seconds"], 2)),
            ]

        name = f"{ledgers} ledgers of {entries} entries"
        return FactCase(name, ledgers * entries, "2-of-3 striped", facts)

    sizes = [(LEDGERS, ENTRIES), (LEDGERS, 100 * ENTRIES), _LONG_SIZE]
    yield (figures(context.scaled(ledgers), entries) for ledgers, entries in sizes)


ROWS = (
    BenchmarkRow(
        "audit",
        "an audit, ledger metadata to violations",
        "The durability check alone works on columns, as tables of a dump have them; an audit "
        "reads metadata from the store and asks each bookie for each ledger, of objects at hand, "
        "of bytes to be decoded, or of directories (index files, RocksDB). Beside it the same a "
        "ledger at a time with sets of entries, each entry's write set from `schedule.write_set`, "
        "or counted out in the loop (in line). Where all directories are of one layout: the audit "
        "as it is, and with bookies that are asked for each ledger on its own, as it was before "
        "`availability_many`.",
        _audit_cases,
        long=True,
    ),
    BenchmarkRow(
        "audit-memory",
        "memory of an audit",
        "`python -m tools.bench.inputs.audit_cluster` in a process of its own: the highest "
        "resident size before and after the audit. It grows with ledgers and groups, not with "
        "entries.",
        _memory_figures,
        long=True,
    ),
)
