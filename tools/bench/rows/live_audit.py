"""Row: an audit of running bookies, beside the one over copies of their directories."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bkstore import BookieDir
from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.audit import AuditOptions, Auditor, DirectoryBookie, EntriesOfLedger
from bkstore.errors import MissingDependency
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.network import AuditedBookies
from bkstore.storage.options import Storage
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tools.bench.inputs.audit_cluster import (
    BOOKIES,
    MIXED,
    Cluster,
    Layout,
    Missing,
    audited,
    directories,
)
from tools.bench.inputs.bookie_process import BookieProcess, bookie_process
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.measure import Case, Context, Fact, Figures, Row, Side

LEDGERS, ENTRIES = 20_000, 500
_STORAGES: Mapping[Layout, Storage] = {"idx": "sorted", "rocksdb": "db"}


def _filled(server: ZooKeeperServer, cluster: Cluster, stack: ExitStack) -> ZooKeeperStore:
    """Return a store in ZooKeeper that has the cluster's metadata."""
    store = stack.enter_context(ZooKeeperStore.format(server.uri(), timeout=120))
    metadata = (cluster.store.read(name).metadata for name in cluster.store.ledgers())
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(store.create, metadata))
    return store


def _serving(
    store: ZooKeeperStore, paths: Mapping[str, Path], stack: ExitStack
) -> list[BookieProcess]:
    """Start a process for each bookie, and register it."""
    running = []
    for name, path in paths.items():
        bookie = stack.enter_context(bookie_process(_STORAGES[MIXED[name]], path))
        store.register(name, ServiceInfo.at(*bookie.address))
        running.append(bookie)
    return running


def _costs(work: Callable[[], object], bookies: list[BookieProcess], ledgers: int) -> list[Fact]:
    """Return what a ledger takes of the auditor's process, of the bookies and of the clock."""
    served = sum(each.cpu_seconds() for each in bookies)
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    served = sum(each.cpu_seconds() for each in bookies) - served
    told = ("auditor's CPU, threads of ZooKeeper's client among it", "CPU of three bookies", "wall")
    return [
        Fact(f"{what}, us a ledger", round(value / ledgers * 1e6, 1))
        for what, value in zip(told, (cpu, served, wall))
    ]


def _case(
    cluster: Cluster,
    store: ZooKeeperStore,
    copies: Mapping[str, EntriesOfLedger],
    bookies: list[BookieProcess],
    live: AuditedBookies,
) -> Case:
    def online() -> Missing:
        return audited(store, live)

    def at_once() -> None:
        Auditor(store, live, options=AuditOptions(looks=0)).run()

    def facts() -> list[Fact]:
        same = online() == cluster.lost
        found = Fact("finds what was taken out", "yes" if same else "no", "yes", same)
        return [found, *_costs(at_once, bookies, cluster.ledgers)]

    return Case(
        "metadata in ZooKeeper",
        cluster.ledgers * cluster.entries,
        f"{cluster.ledgers} closed ledgers of {cluster.entries} entries, 2-of-3 striped, on "
        f"{len(BOOKIES)} bookies of sorted and db storage, {len(cluster.lost)} replicas missing",
        Side("lists of entries over loopback", online),
        (Side("copies of the directories", lambda: audited(store, copies)),),
        kind="cost",
        facts=facts,
    )


@contextmanager
def _live(context: Context) -> Iterator[Iterator[Case | Figures]]:
    cluster = Cluster(context.scaled(LEDGERS), ENTRIES, context.seed)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(ZooKeeperServer(new_directory(context)))
        except MissingDependency as error:
            lacking = [Fact("not measured", str(error))]
            yield iter([Figures("no ZooKeeper", 0, "nothing", lambda: lacking)])
            return
        paths = directories(cluster, new_directory(context))
        opened = {}
        for name, path in paths.items():
            copied = shutil.copytree(path, path.with_name(f"{name}-copy"))
            opened[name] = DirectoryBookie(stack.enter_context(BookieDir(copied)))
        store = _filled(server, cluster, stack)
        bookies = _serving(store, paths, stack)
        live = stack.enter_context(AuditedBookies(store, timeout=60.0))
        yield iter([_case(cluster, store, opened, bookies, live)])


ROWS = (
    Row(
        "live-audit",
        "an audit over the wire",
        "Bookies in processes of their own, metadata in a real ZooKeeper on the same machine. Ours "
        "asks each bookie for its list of entries of each ledger, pipelined; beside it directories "
        "with the same indexes, by `availability_many`. Both read metadata and marks from "
        "ZooKeeper. The ratio is of the CPU of the thread that audits; the facts have all of the "
        "auditor's process, the bookies and the clock, with bookies asked side by side.",
        _live,
        long=True,
    ),
)
