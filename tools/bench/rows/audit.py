"""Rows: an audit of a cluster, compared with the same check entry by entry, and its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from bkstore import BookieDir
from bkstore.cluster.audit import AvailabilitySource, DirectoryBookie
from bkstore.cluster.store.api import MetadataStore
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, FactCase, TimedSide
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
from tools.bench.inputs.own_process import run_input

LEDGERS, ENTRIES = 20_000, 500
_MIN_SPEED_UP: Mapping[Layout, float] = {"idx": 4, "rocksdb": 6}
_LONG_SIZE = (100_000, 500)


def _describe_cluster(cluster: AuditCluster) -> str:
    count = cluster.ledgers * cluster.entries
    return (
        f"{cluster.ledgers} closed ledgers, {count} entries, 2-of-3 striped, on {len(BOOKIES)} "
        f"bookies, {len(cluster.lost)} replicas missing"
    )


FindMissing = Callable[[], Missing]
Bookies = Mapping[str, AvailabilitySource]


def _make_case(
    name: str,
    cluster: AuditCluster,
    ours: FindMissing,
    baseline: TimedSide,
    limit: float | None = None,
) -> Case:
    """Return a case that finds the missing replicas, with the fact whether it finds all."""

    def facts() -> list[Fact]:
        return [Fact.yes_or_no("finds what was taken out", ours() == cluster.lost)]

    items, shape = cluster.ledgers * cluster.entries, _describe_cluster(cluster)
    side = TimedSide("sequence groups", ours)
    return Case(name, items, shape, side, (baseline,), limit=limit, facts=facts)


def _inline_side(store: MetadataStore, bookies: Bookies) -> TimedSide:
    return TimedSide("entry by entry, in line", lambda: find_missing_inline(store, bookies))


_OpenDirectories = Callable[[Mapping[str, Layout]], Bookies]
_MakeCases = Callable[[AuditCluster, _OpenDirectories], Iterator[Case]]


def _cases_by_entry(cluster: AuditCluster, open_directories: _OpenDirectories) -> Iterator[Case]:
    """Yield the durability check alone, then audits with more and more of the real work: bytes to
    be decoded, index directories. Baselines are loops over entries; most compute write sets inline.
    """

    def audit_case(name: str, store: MetadataStore, bookies: Bookies, baseline: TimedSide) -> Case:
        return _make_case(name, cluster, lambda: run_audit(store, bookies), baseline)

    def inline_case(name: str, store: MetadataStore, bookies: Bookies) -> Case:
        return audit_case(name, store, bookies, _inline_side(store, bookies))

    store, bookies = DecodedStore(cluster), {name: DecodedBookie(cluster, name) for name in BOOKIES}
    check, in_line = DurabilityCheck(cluster).missing, _inline_side(store, bookies)
    yield _make_case("durability check", cluster, check, in_line, limit=50)
    find_missing: FindMissing = lambda: find_missing_by_entry(store, bookies)  # noqa: E731
    by_write_set = TimedSide("entry by entry, write_set", find_missing)
    yield audit_case("audit", store, bookies, by_write_set)
    yield inline_case("audit, in line", store, bookies)
    yield inline_case("audit, bytes to be decoded", cluster.store, cluster.bookies())
    yield inline_case("audit, directories", cluster.store, open_directories(MIXED_LAYOUTS))


def _cases_by_ledger(cluster: AuditCluster, open_directories: _OpenDirectories) -> Iterator[Case]:
    """Yield an audit for each layout of index directories, beside one with a call a ledger."""
    for layout in LAYOUTS:
        directories = open_directories(dict.fromkeys(BOOKIES, layout))
        limit = _MIN_SPEED_UP[layout]
        yield _batch_call_case(f"audit, directories, {layout}", cluster, directories, limit)


def _batch_call_case(name: str, cluster: AuditCluster, bookies: Bookies, limit: float) -> Case:
    store, items = cluster.store, cluster.ledgers * cluster.entries
    single = {bookie_id: SingleCallBookie(bookie) for bookie_id, bookie in bookies.items()}
    one_by_one = TimedSide("availability, a call a ledger", lambda: run_audit(store, single))
    ours = TimedSide("availability_many", lambda: run_audit(store, bookies))
    return Case(name, items, _describe_cluster(cluster), ours, (one_by_one,), limit=limit)


def _audit_cases(make_cases: _MakeCases, context: Context) -> Cases:
    cluster = AuditCluster(context.scaled(LEDGERS), ENTRIES, context.seed)
    with ExitStack() as stack:

        def open_directories(layouts: Mapping[str, Layout]) -> Bookies:
            paths = write_directories(cluster, new_directory(context), layouts)
            open_dirs = {name: stack.enter_context(BookieDir(paths[name])) for name in paths}
            return {name: DirectoryBookie(bookie_dir) for name, bookie_dir in open_dirs.items()}

        yield from make_cases(cluster, open_directories)


def _memory_figures(context: Context) -> Cases:
    for ledgers, entries in ((LEDGERS, ENTRIES), (LEDGERS, 100 * ENTRIES), _LONG_SIZE):
        ledgers = context.scaled(ledgers)
        name = f"{ledgers} ledgers of {entries} entries"
        facts = partial(_memory_facts, ledgers, entries)
        yield FactCase(name, ledgers * entries, "2-of-3 striped", facts)


def _memory_facts(ledgers: int, entries: int) -> list[Fact]:
    result = run_input("audit_cluster", ledgers, entries)
    return [
        Fact("MiB that the audit adds", round((result["peak"] - result["start"]) / 2**20)),
        Fact("MiB before it, metadata included", round(result["start"] / 2**20)),
        Fact("seconds", round(result["seconds"], 2)),
    ]


ROWS = (
    BenchmarkRow(
        "audit",
        "an audit, ledger metadata to violations",
        "The durability check alone works on columns, as tables of a dump have them; an audit "
        "reads metadata from the store and asks each bookie for each ledger, of objects at hand, "
        "of bytes to be decoded, or of directories (index files, RocksDB). Beside it the same a "
        "ledger at a time with sets of entries, each entry's write set from `schedule.write_set`, "
        "or counted out in the loop (in line).",
        partial(_audit_cases, _cases_by_entry),
        long=True,
    ),
    BenchmarkRow(
        "audit-directories",
        "an audit of index directories, of many ledgers at once",
        "Three directories of one layout: the audit as it is, and with bookies that are asked for "
        "each ledger on its own, as it was before `availability_many`.",
        partial(_audit_cases, _cases_by_ledger),
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
