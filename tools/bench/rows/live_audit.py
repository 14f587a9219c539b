"""Row: an audit of running bookies, compared with one of copies of their directories."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bkstore import BookieDir
from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.audit import AuditOptions, Auditor, AvailabilitySource, DirectoryBookie
from bkstore.errors import MissingDependency
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.lab.stores.bookie_process import BenchmarkBookie, bookie_process
from bkstore.network import AuditedBookies
from bkstore.storage.options import StorageKind
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, FactCase, TimedSide
from tools.bench.inputs.audit_cluster import (
    BOOKIES,
    MIXED_LAYOUTS,
    AuditCluster,
    Layout,
    Missing,
    run_audit,
    write_directories,
)
from tools.bench.inputs.entry_ids import new_directory

LEDGERS, ENTRIES = 20_000, 500
_STORAGES: Mapping[Layout, StorageKind] = {"idx": "sorted", "rocksdb": "db"}


def _fill_store(store: ZooKeeperStore, cluster: AuditCluster) -> None:
    metadata = (cluster.store.read(ledger_id).metadata for ledger_id in cluster.store.ledgers())
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(store.create, metadata))


def _start_bookies(
    store: ZooKeeperStore, paths: Mapping[str, Path], stack: ExitStack
) -> list[BenchmarkBookie]:
    """Start a bookie in a process for each directory, and register it in the store."""
    processes = []
    for bookie_id, path in paths.items():
        bookie = stack.enter_context(bookie_process(_STORAGES[MIXED_LAYOUTS[bookie_id]], path))
        store.register(bookie_id, ServiceInfo.at(*bookie.address))
        processes.append(bookie)
    return processes


def _cost_facts(run: Callable[[], None], bookies: list[BenchmarkBookie], count: int) -> list[Fact]:
    """Return the cost of a ledger: CPU of the auditor's process and of the bookies, wall time."""
    bookies_before = sum(bookie.cpu_seconds() for bookie in bookies)
    wall_before, cpu_before = time.perf_counter(), time.process_time()
    run()
    cpu, wall = time.process_time() - cpu_before, time.perf_counter() - wall_before
    bookie_cpu = sum(bookie.cpu_seconds() for bookie in bookies) - bookies_before
    seconds_of_label = {
        "auditor's CPU, threads of ZooKeeper's client among it": cpu,
        "CPU of three bookies": bookie_cpu,
        "wall": wall,
    }
    return [
        Fact(f"{label}, us a ledger", round(seconds / count * 1e6, 1))
        for label, seconds in seconds_of_label.items()
    ]


def _audit_case(
    cluster: AuditCluster,
    store: ZooKeeperStore,
    copies: Mapping[str, AvailabilitySource],
    bookies: list[BenchmarkBookie],
    live: AuditedBookies,
) -> Case:
    def audit_online() -> Missing:
        return run_audit(store, live)

    def audit_in_parallel() -> None:
        Auditor(store, live, options=AuditOptions(rechecks=0)).run()

    def facts() -> list[Fact]:
        verdict = Fact.yes_or_no("finds what was taken out", audit_online() == cluster.lost)
        return [verdict, *_cost_facts(audit_in_parallel, bookies, cluster.ledgers)]

    shape = (
        f"{cluster.ledgers} closed ledgers of {cluster.entries} entries, 2-of-3 striped, on "
        f"{len(BOOKIES)} bookies of sorted and db storage, {len(cluster.lost)} replicas missing"
    )
    items = cluster.ledgers * cluster.entries
    side = TimedSide("lists of entries over loopback", audit_online)
    baseline = TimedSide("copies of the directories", lambda: run_audit(store, copies))
    return Case("metadata in ZooKeeper", items, shape, side, (baseline,), kind="cost", facts=facts)


def _live_cases(context: Context) -> Cases:
    cluster = AuditCluster(context.scaled(LEDGERS), ENTRIES, context.seed)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(ZooKeeperServer(new_directory(context)))
        except MissingDependency as error:
            reason = [Fact("not measured", str(error))]
            yield FactCase("no ZooKeeper", 0, "nothing", lambda: reason)
            return
        paths = write_directories(cluster, new_directory(context))
        copies = {}
        for bookie_id, path in paths.items():
            copy = shutil.copytree(path, path.with_name(f"{bookie_id}-copy"))
            copies[bookie_id] = DirectoryBookie(stack.enter_context(BookieDir(copy)))
        store = stack.enter_context(ZooKeeperStore.format(server.uri(), timeout=120))
        _fill_store(store, cluster)
        bookies = _start_bookies(store, paths, stack)
        live = stack.enter_context(AuditedBookies(store, timeout=60.0))
        yield _audit_case(cluster, store, copies, bookies, live)


ROWS = (
    BenchmarkRow(
        "live-audit",
        "an audit over the wire",
        "Bookies in processes of their own, metadata in a real ZooKeeper on the same machine. Ours "
        "asks each bookie for its list of entries of each ledger, pipelined; beside it directories "
        "with the same indexes, by `availability_many`. Both read metadata and marks from "
        "ZooKeeper. The ratio is of the CPU of the thread that audits; the facts have all of the "
        "auditor's process, the bookies and the clock, with bookies asked side by side.",
        _live_cases,
        long=True,
    ),
)
