"""`/metrics`: BP-62's histograms with their buckets, and counters of operations."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from bkstore import Bookie, LedgerId
from bkstore.cluster.garbage import BackgroundCollector
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import InvalidArgument, MetadataUnavailable, MissingDependency
from bkstore.wire.admin import AdminServer, OperationCounters
from bkstore.wire.status_codes import Status
from tests.wire.admin.asking import ask, fill

prometheus = pytest.importorskip("prometheus_client")
pytest.importorskip("aiohttp")

REQUEST = "bookkeeper_server_BATCH_READ_ENTRY_REQUEST"
SIZE = "bookkeeper_server_BATCH_READ_ENTRY_RESPONSE_SIZE"


def samples(admin: AdminServer) -> dict[tuple[str, ...], float]:
    """Return what is exposed: (name, label values in the order of their names) -> value."""
    from prometheus_client.parser import text_string_to_metric_families

    text = ask(admin, "/metrics").body.decode()
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def buckets(found: dict[tuple[str, ...], float], name: str) -> list[tuple[float, float]]:
    """Return (upper bound, count) of a histogram without labels."""
    return [(float(key[1]), value) for key, value in found.items() if key[0] == f"{name}_bucket"]


def test_the_buckets_of_bp_62(admin: AdminServer) -> None:
    """Both histograms are there from the start, with the buckets that the proposal lists."""
    found = samples(admin)
    latencies = [5, 10, 20, 50, 100, 200, 500, 1000, 3000, float("inf")]
    sizes = [128, 512, 1024, 2048, 4096, 16384, 131072, 1048576, float("inf")]

    assert [(bound, 0.0) for bound in latencies] == buckets(found, REQUEST)
    assert [(bound, 0.0) for bound in sizes] == buckets(found, SIZE)


@pytest.mark.parametrize(
    ("milliseconds", "size", "bound", "within"),
    [
        (0.0, 0, 5, 128),
        (5.0, 128, 5, 128),
        (5.1, 129, 10, 512),
        (20.5, 513, 50, 1024),
        (999.0, 16385, 1000, 131072),
        (3000.0, 1048576, 3000, 1048576),
        (3000.5, 1048577, float("inf"), float("inf")),
    ],
)
def test_each_value_has_its_bucket(
    admin: AdminServer, milliseconds: float, size: int, bound: float, within: float
) -> None:
    """Latency counts in milliseconds, size in bytes; a bucket's upper bound belongs to it."""
    admin.counters.observe("BATCH_READ_ENTRY", 2, milliseconds / 1000, Status.EOK, size)
    found = samples(admin)

    assert bound == min(le for le, count in buckets(found, REQUEST) if count)
    assert within == min(le for le, count in buckets(found, SIZE) if count)
    assert milliseconds == pytest.approx(found[f"{REQUEST}_sum",])
    assert size == found[f"{SIZE}_sum",]


def test_only_batch_reads_are_in_them(admin: AdminServer) -> None:
    """Other operations are counted, and are in neither histogram; an error has no size."""
    observe = admin.counters.observe
    observe("READ_ENTRY", 3, 0.1, Status.EOK)
    observe("READ_ENTRY", 3, 0.1, Status.ENOENTRY)
    observe("ADD_ENTRY", 2, 0.1, Status.EOK)
    observe("BATCH_READ_ENTRY", 2, 0.1, Status.ENOLEDGER, None)
    found = samples(admin)

    assert (1.0, 0.0) == (found[f"{REQUEST}_count",], found[f"{SIZE}_count",])
    assert {
        ("READ_ENTRY", "v3", "EOK"): 1.0,
        ("READ_ENTRY", "v3", "ENOENTRY"): 1.0,
        ("ADD_ENTRY", "v2", "EOK"): 1.0,
        ("BATCH_READ_ENTRY", "v2", "ENOLEDGER"): 1.0,
    } == {key[1:]: n for key, n in found.items() if key[0] == "bkstore_server_requests_total"}
    assert 2.0 == found["bkstore_server_seconds_count", "READ_ENTRY", "v3"]


def test_the_admin_counts_itself(admin: AdminServer) -> None:
    """Requests to the admin are counted by path and status; unknown paths as one."""
    for path in ("/heartbeat", "/heartbeat", "/nowhere", "/elsewhere", "/api/v1/ledger/read"):
        ask(admin, path)
    found = {key[1:]: n for key, n in samples(admin).items() if "admin_requests_total" in key[0]}

    assert {
        ("/heartbeat", "200"): 2.0,
        ("other", "404"): 2.0,
        ("/api/v1/ledger/read", "404"): 1.0,
    } == found


def test_the_text_is_prometheus(admin: AdminServer) -> None:
    """The content type is that of the text format, and parameters of a scraper do no harm."""
    reply = ask(admin, "/metrics?name[]=x")

    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (
        reply.status,
        reply.headers["content-type"],
    )


def test_a_registry_of_ones_own(bookie: Bookie) -> None:
    """Given counters are shown with all else that is in their registry; a second set is refused."""
    registry = prometheus.CollectorRegistry()
    prometheus.Counter("mine", "Mine", registry=registry).inc(3)
    counters = OperationCounters(registry)
    with AdminServer(bookie, metrics=counters) as admin:
        assert 3.0 == samples(admin)["mine_total",]
        assert counters is admin.counters
    with pytest.raises(InvalidArgument, match="registry"):
        OperationCounters(registry)


def test_threads_lose_no_count() -> None:
    """Counts of several threads add up."""
    counters = OperationCounters()

    def count() -> None:
        for _ in range(1000):
            counters.observe("BATCH_READ_ENTRY", 3, 0.001, Status.EOK, 10)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 4000.0 == counters.registry.get_sample_value(f"{REQUEST}_count")


@pytest.mark.parametrize("package", ["prometheus_client", "aiohttp"])
def test_a_missing_package_is_named(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """Without a package of the extra the error names it and the command that installs it."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=package.replace("_", "[_-]")) as caught:
        AdminServer(bookie)

    assert "pip install" in str(caught.value)


def test_it_has_the_shape_of_an_observer() -> None:
    """What a server tells an observer is what the counters take, by the same names."""
    import inspect

    observer: Any = pytest.importorskip("bkstore.wire.server.observer")
    wanted = inspect.signature(observer.Observer.observe).parameters
    taken = inspect.signature(OperationCounters.observe).parameters

    assert [(p.name, p.default, p.annotation) for p in wanted.values()] == [
        (p.name, p.default, p.annotation) for p in taken.values()
    ]


def test_figures_of_garbage_collection(bookie: Bookie) -> None:
    """By the names that a real bookie gives them; a pass without an answer of the store, and a
    suspension, by names of ours."""
    store = MemoryStore()
    collector = BackgroundCollector(bookie, store)
    fill(bookie, 7, range(3))
    with AdminServer(bookie, collector=collector) as admin:
        before = samples(admin)
        collector.run_pass(["major"])
        store.ledgers = lambda scope=None: _fail()  # type: ignore[method-assign]
        collector.run_pass(["minor"])
        collector.suspend("minor")
        found = samples(admin)
    size = 3 * (4 + 36)  # sizes, headers with digests; payloads beside

    assert 0 == before["bookie_gc_DELETED_LEDGER_TOTAL",]
    assert {
        "DELETED_LEDGER_TOTAL": 1,
        "MAJOR_COMPACTION_TOTAL": 1,
        "MINOR_COMPACTION_TOTAL": 1,
        "ENTRY_LOCATION_COMPACTION_TOTAL": 0,
        "RECLAIMED_COMPACTION_SPACE_BYTES": 0,
        "ACTIVE_LEDGER_TOTAL": 0,
        "ACTIVE_ENTRY_LOG_TOTAL": 0,
        "ENTRY_LOG_SPACE_BYTES": 0,
        "ACTIVE_ENTRY_LOG_SPACE_BYTES": 0,
        "entry_log_usage_buckets_le_100": 0,
    }.items() <= {
        name[0].removeprefix("bookie_gc_"): value for name, value in found.items()
    }.items()
    assert size <= found["bookie_gc_RECLAIMED_DELETION_SPACE_BYTES",]
    assert [(2, 0), (1, 1)] == [
        (found[f"bookie_gc_{name}_count", "true"], found[f"bookie_gc_{name}_count", "false"])
        for name in ("THREAD_RUNTIME", "GC_LEDGER_RUNTIME")
    ]
    assert (1, 0, 1) == (
        found["bkstore_gc_unjudged_total",],
        found["bkstore_gc_suspended", "major"],
        found["bkstore_gc_suspended", "minor"],
    )


def _fail() -> list[LedgerId]:
    raise MetadataUnavailable("no answer")
