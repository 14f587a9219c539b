"""Every field of every class of settings, and every argument like it, is checked when it is made.

What is allowed stands in the reference: page sizes are whole slots, an entry log begins with 1024
bytes and has 2^30 at most, journals are written in versions 4 to 6, padded to multiples of 512.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bkstore
from bkstore import Availability, BookieDir, InvalidArgument, LedgerId, LedgerStorage, open_index
from bkstore.arguments import choice, integer, number
from bkstore.bloom import BloomFilter, FilterSet
from bkstore.cluster import Cluster
from bkstore.cluster.audit import AuditOptions
from bkstore.cluster.audit.auditor import Auditor
from bkstore.cluster.audit.offline_bookies import DirectoryBookie
from bkstore.cluster.client.options import ClientOptions
from bkstore.cluster.garbage import GarbageOptions
from bkstore.cluster.placement.policies import DefaultPlacement, RackPlacement
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.formats.idxfile import IdxHeader, decode_header, encode_header
from bkstore.formats.metadata.store_paths import short_path
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.offset_range import OffsetRangeIndex
from bkstore.index.rocks import RocksIndex
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.network.disk_watch import DiskOptions
from bkstore.offline.analyses.catalog import Options as AnalysisOptions
from bkstore.offline.analyses.local_engine import LocalEngine
from bkstore.offline.dump import TABLES, dump
from bkstore.offline.load import LocalLoadEngine as LocalLoad, load
from bkstore.offline.rewrite.rewrite_job import OpenOptions
from bkstore.repair import RepairOptions
from bkstore.schedule import bookie_index, write_set
from bkstore.spark.source.options import SourceOptions
from bkstore.storage.batch_limits import count_fitting
from bkstore.storage.bookie import Bookie
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.journal.writer import JournalWriter
from bkstore.storage.ledgers.garbage_pass import CompactionOptions
from bkstore.storage.options import JournalOptions, StorageOptions
from bkstore.streams.image.stream_image import StreamImage
from bkstore.streams.lookup.object_reader import ImageReader
from bkstore.streams.lookup.options import LookupOptions
from bkstore.streams.lookup.sparse_index import SparseRangeIndex
from bkstore.streams.lookup.stream_lookup import StreamLookup
from bkstore.testing.crash import CrashFiles
from bkstore.testing.faults import FaultPlan
from bkstore.testing.stream_worlds import WorldShape
from bkstore.testing.workloads import LedgerShape, Workload
from bkstore.wire.server import ServerOptions

NO_NUMBER: tuple[Any, ...] = (True, False, None, "1", b"1", 1.0, 1.5, math.nan, math.inf, [1])
"""What is not an integer, though Python calculates with some of it."""

POSITIVE = (*NO_NUMBER, 0, -1, 2**63)
FROM_0 = (*NO_NUMBER, -1, 2**63)
FLAG = (None, 0, 1, "yes", "False", [])
WORD = ("typo", "", 1, True, b"bookkeeper", ["bookkeeper"])
COMPAT = (*WORD, "Bookkeeper", "bookkeeper ", False, 0)
SHARE = (None, "0.5", math.nan, math.inf, -0.1, 1.1, True, [])
SECONDS = ("1", math.nan, math.inf, 0, -1, True, [])
_NUMBER = ("1", math.nan, math.inf, True, [])
CALL = ("choose", 3, [])
PAIR = (None, 3, (1,), (1, 2, 3), (5, 4), (-1, 2), (True, 2), (1, "2"), (0.5, 2))

BAD: dict[type, dict[str, tuple[Any, ...]]] = {
    StorageOptions: {
        "entry_log_size": (*POSITIVE, 1024, 2**30 + 1),
        "entry_log_per_ledger": FLAG,
        "max_active_logs": POSITIVE,
        "write_cache": POSITIVE,
        "auto_flush": FLAG,
        "pending_locations": POSITIVE,
        "max_entry_size": (*POSITIVE, 2**31),
        "page_size": (*POSITIVE, 7, 12, -8, 2**31),
        "index_header_version": (*FROM_0, 2),
        "max_index_pages": POSITIVE,
        "max_batch_size": (*POSITIVE, 2**31),
        "flush_order": (*WORD, None, "index_first"),
        "choose": CALL,
        "compat": COMPAT,
    },
    JournalOptions: {
        "version": (*POSITIVE, 3, 7),
        "max_size": POSITIVE,
        "preallocate": (*FROM_0, 1, 513),
        "alignment": (*POSITIVE, 256, 513, 1000),
        "write_buffer": FROM_0,
        "max_backups": FROM_0,
        "skip_invalid_records": FLAG,
        "clock": (*CALL, None),
    },
    ClientOptions: {
        "batch_reads": FLAG,
        "max_frame": (*POSITIVE, 2**31),
        "delay_ensemble_change": FLAG,
        "window": (*POSITIVE, 2**20 + 1),
        "compat": COMPAT,
    },
    DiskOptions: {
        "full": (*SHARE, 0),
        "writable_again": (*SHARE, 0),
        "interval": (None, *SECONDS),
        "any_full": FLAG,
    },
    GarbageOptions: {
        "gc_wait_time": (None, "1", math.nan, math.inf, -1, True, []),
        "minor_compaction_threshold": (*_NUMBER, None, 1.1, 0.8),
        "minor_compaction_interval": (*_NUMBER, None, 599, 86400),
        "minor_compaction_max_time": _NUMBER,
        "major_compaction_threshold": (*_NUMBER, None, 1.1, 0.1),
        "major_compaction_interval": (*_NUMBER, None, 599, 3600),
        "major_compaction_max_time": _NUMBER,
        "compaction_rate_by_entries": POSITIVE,
        "compaction_rate_by_bytes": POSITIVE,
        "is_throttle_by_bytes": FLAG,
        "compaction_max_outstanding_requests": POSITIVE,
        "use_transactional_compaction": FLAG,
        "use_target_entry_log_size_for_gc": FLAG,
        "gc_metadata_op_rate_limit": POSITIVE,
        "is_force_gc_allow_when_no_space": FLAG,
        "force_allow_compaction": FLAG,
        "entry_location_compaction_interval": (*_NUMBER, None, 599),
    },
    ServerOptions: {
        "max_frame": (*POSITIVE, 3, 2**31),
        "read_threads": POSITIVE,
        "write_threads": POSITIVE,
        "max_waiting": POSITIVE,
        "max_waiting_bytes": POSITIVE,
        "max_group": POSITIVE,
        "max_connections": POSITIVE,
        "memory": POSITIVE,
        "stall_timeout": (None, *SECONDS),
        "stop_timeout": (None, "1", math.nan, math.inf, -1, True),
        "authentication_timeout": (None, *SECONDS),
        "authentication_memory": POSITIVE,
    },
    AuditOptions: {
        "grace_period": SECONDS,
        "rechecks": FROM_0,
        "recheck_delay": (None, "1", math.nan, math.inf, -1, True),
        "redo_limit": FROM_0,
        "concurrency": (*POSITIVE, 2**20),
        "batch": POSITIVE,
        "rate": SECONDS,
        "compat": COMPAT,
    },
    RepairOptions: {
        "password": (5, "text"),
        "digest_type": (5, "MD5", True),
        "recover": FLAG,
        "replace_read_only": FLAG,
        "verify": FLAG,
        "parallel": (*POSITIVE, 1025),
        "bytes_per_second": (0, "1", math.nan, math.inf, -1, True),
        "audit": (None, 1, {}),
    },
    LookupOptions: {
        "batch": POSITIVE,
        "growth": (*WORD, None),
        "preload": (*WORD, None),
        "spread": POSITIVE,
        "tail": POSITIVE,
        "preloads": FROM_0,
        "tail_first": FLAG,
        "cut_waves": FLAG,
        "keep_objects": FROM_0,
        "workers": (*POSITIVE, 2**20),
        "load_timeout": SECONDS,
        "sparse_bytes": (*POSITIVE, 39),
    },
    AnalysisOptions: {
        "top": tuple(bad for bad in POSITIVE if bad is not None),
        "by": (1, b"bytes", ["bytes"]),
        "pinned": SHARE,
        "group_by": (*WORD, None),
        "owners": (None, "shop", {}),
        "grace": FROM_0,
        "as_of": tuple(bad for bad in FROM_0 if bad is not None),
    },
    SourceOptions: {
        "sources": ("path", [1], None),
        "table": ("entries", None),
        "length": FLAG,
        "skip_damage": FLAG,
        "partition_rows": POSITIVE,
    },
    WorldShape: {
        "nodes": POSITIVE,
        "streams": POSITIVE,
        "streams_per_object": PAIR,
        "slice_records": PAIR,
        "stream_object_share": SHARE,
        "lost_share": SHARE,
        "move_probability": SHARE,
        "base": FROM_0,
    },
    Workload: {
        "ledgers": (None, 7, [7], [LedgerShape(7, 3)], [LedgerShape(LedgerId(0, 7), -1)]),
        "writers": (*WORD, None),
        "late": SHARE,
        "duplicate": SHARE,
        "window": POSITIVE,
        "payload": PAIR,
        "in_flight": POSITIVE,
        "digest": ("CRC", 1, None, True),
        "password": ("text", None),
        "seed": NO_NUMBER,
    },
}
NEEDED: dict[type, dict[str, Any]] = {
    Workload: {"ledgers": (LedgerShape(LedgerId(0, 7), 3),)},
    SourceOptions: {
        "sources": (),
        "table": TABLES[0],
        "length": False,
        "skip_damage": False,
        "partition_rows": 1,
    },
}
"""What a class cannot be made without."""

CASES = [
    pytest.param(kind, name, id=f"{kind.__name__}.{name}") for kind in BAD for name in BAD[kind]
]


def test_every_class_and_field_is_here() -> None:
    """A new class of settings, or a new field of one, needs its bad values above."""
    found: set[type] = {WorldShape, Workload}
    for module in pkgutil.walk_packages(bkstore.__path__, "bkstore."):
        if "Options" in Path(importlib.util.find_spec(module.name).origin).read_text("utf-8"):  # type: ignore[union-attr, arg-type]
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and value.__name__.endswith("Options"):
                    found.add(value)
    passed_on = {CompactionOptions, OpenOptions}  # the calls that get their fields check them
    ours = {kind for kind in found - passed_on if kind.__module__.startswith("bkstore.")}

    assert {kind for kind in ours if dataclasses.is_dataclass(kind)} == set(BAD)
    for kind, rows in BAD.items():
        assert [field.name for field in dataclasses.fields(kind)] == list(rows)
        assert all(rows.values())


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_bad_values(kind: Callable[..., Any], name: str) -> None:
    """A value that a field does not take is refused when the settings are made, by name."""
    for bad in BAD[kind][name]:  # type: ignore[index]
        given = {**NEEDED.get(kind, {}), name: bad}  # type: ignore[call-overload]
        with pytest.raises(InvalidArgument, match=name):
            kind(**given)


@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind.__name__)
def test_defaults_and_numpy_integers(kind: Callable[..., Any]) -> None:
    """The defaults are taken, and a numpy integer, which comes out as an int."""
    made = kind(**NEEDED.get(kind, {}))  # type: ignore[call-overload]
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if type(value) is int:
            again = dataclasses.replace(made, **{field.name: np.int64(value)})

            assert made == again
            assert int is type(getattr(again, field.name))


def test_options_of_another_kind(tmp_path: Path) -> None:
    """Settings are of the class that is asked for."""
    store, image = MemoryStore(), StreamImage()
    for make in (
        lambda: LedgerStorage.open(tmp_path / "s", options=JournalOptions()),  # type: ignore[arg-type]
        lambda: Bookie.open(tmp_path / "b", journal=StorageOptions()),  # type: ignore[arg-type]
        lambda: Bookie.open(tmp_path / "b", options={"compat": None}),  # type: ignore[arg-type]
        lambda: Cluster.open(tmp_path / "c", client_options=StorageOptions()),  # type: ignore[arg-type]
        lambda: Auditor(store, {}, options=ClientOptions()),  # type: ignore[arg-type]
        lambda: StreamLookup(image, ImageReader(image), options=AuditOptions()),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgument, match=r"options must be of type|journal must be"):
            make()

    assert [] == list(tmp_path.iterdir())


ARGUMENTS: dict[str, tuple[Callable[[Path, Any], Any], tuple[Any, ...]]] = {
    "storage": (lambda top, bad: LedgerStorage.open(top, bad), (*WORD, None, "rocksdb")),
    "storage of a bookie": (lambda top, bad: Bookie.open(top, bad), (*WORD, "rocksdb")),
    "storage of a cluster": (lambda top, bad: Cluster.open(top, 1, bad), (*WORD, None, ["x"])),
    "bookies": (lambda top, bad: Cluster.open(top, bad), (-1, 1.5, True, "b1", None, [1])),
    "timeout": (lambda top, bad: Cluster.open(top, timeout=bad), SECONDS),
    "page_size": (
        lambda top, bad: HierarchicalIndex(top, writable=True, page_size=bad),
        BAD[StorageOptions]["page_size"],
    ),
    "header_version": (
        lambda top, bad: HierarchicalIndex(top, writable=True, header_version=bad),
        BAD[StorageOptions]["index_header_version"],
    ),
    "max_pages": (
        lambda top, bad: HierarchicalIndex(top, writable=True, max_pages=bad),
        POSITIVE,
    ),
    "compat of an index": (
        lambda top, bad: HierarchicalIndex(top, writable=True, compat=bad),
        COMPAT,
    ),
    "writable": (lambda top, bad: HierarchicalIndex(top, writable=bad), FLAG),
    "writable RocksDB": (lambda top, bad: RocksIndex(top, writable=bad), FLAG),
    "live": (lambda top, bad: RocksIndex(top, live=bad), FLAG),
    "live directory": (lambda top, bad: BookieDir(top, live=bad), FLAG),
    "compat of a directory": (lambda top, bad: BookieDir(top, compat=bad), COMPAT),
    "page_size of a directory": (lambda top, bad: BookieDir(top, page_size=bad), (7, True, None)),
    "compat of open_index": (lambda top, bad: open_index(top, compat=bad), COMPAT),
    "journal version": (
        lambda top, bad: JournalWriter(top, version=bad),
        BAD[JournalOptions]["version"],
    ),
    "first_id": (lambda top, bad: JournalWriter(top, first_id=bad), (True, -1, 1.5, "7")),
    "size_limit": (
        lambda top, bad: EntryLogger([top], size_limit=bad),
        BAD[StorageOptions]["entry_log_size"],
    ),
    "max_active": (lambda top, bad: EntryLogger([top], max_active=bad), POSITIVE),
    "jobs": (lambda top, bad: dump([top], top / "out", jobs=bad), (0, -1, True, 1.5, "2", 2**40)),
    "piece_rows": (lambda top, bad: dump([top], top / "out", piece_rows=bad), POSITIVE),
    "length": (lambda top, bad: dump([top], top / "out", length=bad), FLAG),
    "resume": (lambda top, bad: dump([top], top / "out", resume=bad), FLAG),
    "to": (lambda top, bad: load(top, top / "out", bad), (*WORD, None, "db")),
    "directories": (
        lambda top, bad: load(top, top / "out", directories=bad),
        (0, -1, True, 1.5, "2"),
    ),
    "compare": (lambda top, bad: load(top, top / "out", compare=bad), FLAG),
    "run_rows": (lambda _, bad: LocalLoad(bad), POSITIVE),
    "memory": (lambda _, bad: LocalEngine(bad), (*POSITIVE, 63)),
    "threads": (lambda _, bad: LocalEngine(threads=bad), (0, -1, True, 1.5, "2")),
    "strategy": (
        lambda _, bad: StreamLookup(StreamImage(), ImageReader(StreamImage()), bad),
        (*WORD, None),
    ),
    "latency": (lambda _, bad: ImageReader(StreamImage(), latency=bad), (-1, math.nan, "1", True)),
    "failures": (lambda _, bad: ImageReader(StreamImage(), failures=bad), (*SHARE[2:7], "1")),
    "stream": (lambda _, bad: OffsetRangeIndex().put(bad, 1, 1, 1), NO_NUMBER),
    "ensemble size": (
        lambda _, bad: LedgerMetadata(LedgerId(0, 7), bad, 1, 1, ((0, ("b1",)),)),
        (*NO_NUMBER, 2**63),
    ),
    "batch of a workload": (
        lambda _, bad: Workload(**NEEDED[Workload]).ids(bad),
        POSITIVE,
    ),
    "max_bytes": (lambda _, bad: SparseRangeIndex(bad), (*POSITIVE, 39)),
    "max_bytes of filters": (lambda _, bad: FilterSet(bad), FROM_0),
    "ttl": (lambda _, bad: OffsetRangeIndex(ttl=bad), (None, "1", math.nan, 0, -1, True)),
    "expire_after": (lambda _, bad: OffsetRangeIndex(expire_after=bad), (*WORD, None)),
    "max_items": (lambda _, bad: OffsetRangeIndex(max_items=bad), POSITIVE),
    "max_entries": (lambda _, bad: OffsetRangeIndex(max_entries=bad), POSITIVE),
    "expected_insertions": (lambda _, bad: BloomFilter(bad), FROM_0),
    "fpp": (lambda _, bad: BloomFilter(9, bad), (None, "0.1", math.nan, 0, 1, -1, True)),
    "compat of a filter": (lambda _, bad: BloomFilter(9, compat=bad), (*WORD, "bookkeeper")),
    "compat of a schedule": (lambda _, bad: bookie_index(0, 0, 3, 2, bad), COMPAT),
    "compat of a batch": (lambda _, bad: count_fitting(np.array([9]), 0, 99, bad), COMPAT),
    "compat of a path": (lambda _, bad: short_path(7, bad), COMPAT),
    "compat of a header": (
        lambda _, bad: decode_header(encode_header(IdxHeader(version=1)), bad),
        COMPAT,
    ),
    "compat of entries": (lambda _, bad: Availability.from_entries([1], compat=bad), COMPAT),
    "compat of bytes": (
        lambda _, bad: Availability.from_bytes(Availability().to_bytes(), compat=bad),
        COMPAT,
    ),
    "compat of what is missing": (
        lambda _, bad: Availability().missing(Availability(), compat=bad),
        COMPAT,
    ),
    "compat of an audit's bookie": (lambda _, bad: DirectoryBookie(None, bad), COMPAT),  # type: ignore[arg-type]
    "write_quorum": (lambda _, bad: write_set(0, 3, bad), (*POSITIVE, 4)),
    "ensemble_size": (lambda _, bad: write_set(0, bad, 1), (*POSITIVE, 2**31)),
    "ack_quorum": (
        lambda _, bad: DefaultPlacement().new_ensemble(3, 2, bad, ["a", "b", "c"]),
        (*POSITIVE, 3),
    ),
    "min_racks": (lambda _, bad: RackPlacement({}, min_racks=bad), POSITIVE),
    "desired_racks": (lambda _, bad: RackPlacement({}, desired_racks=bad), (0, 1, True, "3")),
    "enforce": (lambda _, bad: RackPlacement({}, enforce=bad), FLAG),
    "places": (lambda _, bad: RackPlacement(bad), (None, 7, ["/r1"])),
    "planned call": (lambda _, bad: FaultPlan().fail_write(bad), POSITIVE),
    "keep_bytes": (lambda _, bad: FaultPlan().tear_write(1, bad), FROM_0),
    "after_bytes": (lambda _, bad: FaultPlan().disk_full(bad), FROM_0),
    "calls": (lambda _, bad: CrashFiles().stop_after(bad), POSITIVE),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_bad_arguments(tmp_path: Path, case: str) -> None:
    """The same holds for arguments like these; nothing is on disk, nothing was opened."""
    call, values = ARGUMENTS[case]
    for bad in values:
        if bad is None and case.startswith("compat"):
            continue
        with pytest.raises(InvalidArgument):
            call(tmp_path, bad)

        assert [] == list(tmp_path.iterdir()), (case, bad)


def test_periods(tmp_path: Path) -> None:
    """What is asked of a cluster, a storage or an audit that is open is checked as well."""
    with Cluster.open(tmp_path / "c", 3) as cluster:
        for bad in (-1, math.nan, "1", True):
            with pytest.raises(InvalidArgument, match="seconds"):
                cluster.slow("bookie-1", bad)
        for sizes in ((3, 4, 2), (3, 2, 3), (True, True, True), (3, 2.0, 2), ("3", 2, 2)):
            with pytest.raises(InvalidArgument):
                cluster.create_ledger(*sizes)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="password"):
            cluster.create_ledger(password="text")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="digest"):
            cluster.create_ledger(digest_type=True)  # type: ignore[arg-type]

        assert [] == cluster.store.ledgers()

        with cluster.create_ledger(3, 3, 2) as ledger:
            ledger.append(b"hi")
        storage = cluster.bookie("bookie-1").storage
        for bad in (math.nan, "0.8", 1.1, -1, True):
            with pytest.raises(InvalidArgument, match="threshold"):
                storage.collect_garbage(threshold=bad)  # type: ignore[arg-type]
        for bad in (-1, True, 1.5, None, "1"):
            with pytest.raises(InvalidArgument, match="max_count"):
                storage.read_entries(0, 0, bad)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="max_size"):
                storage.read_entries(0, 0, 0, bad)  # type: ignore[arg-type]
        for odd in (0.0, False, "0", -1.0, None):
            with pytest.raises(InvalidArgument):
                storage.read_entry(0, odd)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument):
                storage.read_entries(0, odd)  # type: ignore[arg-type]


def test_messages() -> None:
    """A message names the argument, what it takes, and what was given."""
    for check, bad, said in (
        (integer(8, 64, 8), 12, "size must be a whole number, 8 to 64, a multiple of 8, not 12"),
        (integer(), "x" * 200, f"size must be a whole number, 0 or more, not '{'x' * 79}..."),
        (number(0, 1), 2, "size must be a number of 0 to 1, not 2"),
        (number(above=True), 0, "size must be a number above 0, not 0"),
        (choice("a", "b"), "c", "size must be 'a' or 'b', not 'c'"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            check("size", bad)

        assert said == str(caught.value)
