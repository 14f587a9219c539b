"""Directories that we write from the golden content, read back as a real bookie's are.

The same assertions as for the trees of the real BookKeeper hold; and the index files are equal
to the real ones, byte for byte.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, LedgerId, open_index
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.testing import generators

HEADER = 1024
PAGES = 1 << 23
"""Enough for the golden ledger that begins at entry 5,000,000,000: a file of mostly hole."""


def fill(index: EntryIndex, tree: Any, reader: Any) -> None:
    """Write what the golden JSON says: states, entries, and the locations it tells.

    Where locations are sampled the others are made up; only told ones are compared.
    """
    for answer in reversed(tree.known):
        ids = reader.expand_runs(answer["entries"])
        told = {row[0]: row[1] for row in answer["locations"]}
        made = generators.locations(len(ids), answer["ledger"] % 1000, log_id=1000).tolist()
        index.put_many(answer["ledger"], ids, [told.get(e, other) for e, other in zip(ids, made)])
        index.set_state(answer["ledger"], state_of(answer, reader, index.supports_limbo))


def state_of(answer: dict[str, Any], reader: Any, limbo: bool) -> LedgerState:
    """Return the state that a golden answer tells; what it does not tell is left out."""
    told = {key: None if reader.refused(value) else value for key, value in answer.items()}
    lac = told["explicit_lac_hex"]
    return LedgerState(
        bytes.fromhex(told["master_key_hex"] or ""),
        bool(told["fenced"]),
        limbo and bool(told.get("limbo")),
        bytes.fromhex(lac) if lac else None,
    )


class TestContent:
    """Written by us, read by us, judged by the real bookie's answers."""

    def test_index_files(self, tree: Any, reader: Any, tmp_path: Path) -> None:
        """Index files in one directory."""
        with HierarchicalIndex(tmp_path / "ledgers", writable=True, max_pages=PAGES) as index:
            fill(index, tree, reader)
        with BookieDir(tmp_path) as bookie:
            assert "idx" == bookie.layout or not tree.known
            reader.everything(bookie.index, tree, limbo=False)
            assert [] == bookie.index.findings()

    def test_index_files_in_several_directories(
        self, tree: Any, reader: Any, tmp_path: Path
    ) -> None:
        """Index files spread over three directories: a ledger is found wherever it lies."""
        tops = [tmp_path / f"ledgers{n}" for n in range(3)]
        with HierarchicalIndex(tops, writable=True, max_pages=PAGES) as index:
            fill(index, tree, reader)
        with open_index(tmp_path) as found:
            reader.everything(found, tree, limbo=False)
        with HierarchicalIndex(list(reversed(tops))) as found:
            reader.everything(found, tree, limbo=False)

    def test_databases(self, tree: Any, reader: Any, tmp_path: Path) -> None:
        """RocksDB databases in one directory."""
        with RocksIndex(tmp_path / "ledgers", writable=True) as index:
            fill(index, tree, reader)
        with BookieDir(tmp_path) as bookie:
            assert "rocksdb" == bookie.layout
            reader.everything(bookie.index, tree, limbo=tree.layout == "rocksdb")
            assert [] == bookie.index.findings()

    def test_databases_in_several_directories(self, tree: Any, reader: Any, tmp_path: Path) -> None:
        """RocksDB databases in three directories, their order given by a configuration."""
        names = ["zeta", "alpha", "mid"]
        tops = [tmp_path / "b" / name for name in names]
        with PartitionedIndex([RocksIndex(top, writable=True) for top in tops]) as index:
            fill(index, tree, reader)
        conf = tmp_path / "bk_server.conf"
        conf.write_text("ledgerDirectories=" + ",".join(f"b/{name}" for name in names) + "\n")
        for number, top in enumerate(tops):
            with RocksIndex(top) as part:
                assert [a["ledger"] for a in tree.known if a["ledger"] % 3 == number] == [
                    name.ledger for name in part.ledgers()
                ]
        with open_index(conf) as found:
            reader.everything(found, tree, limbo=tree.layout == "rocksdb")
        if {0, 1, 2} == {answer["ledger"] % 3 for answer in tree.known}:
            with open_index(tmp_path / "b") as found:  # the order is told by where ledgers lie
                reader.everything(found, tree, limbo=tree.layout == "rocksdb")

    def test_other_scopes(self, tree: Any, reader: Any, tmp_path: Path) -> None:
        """The same content in another scope, beside the real one, in both layouts."""
        scope = 2**64 - 1
        paths = [tmp_path / "idx", tmp_path / "rocks"]
        indexes: list[EntryIndex] = [
            HierarchicalIndex(paths[0], writable=True, max_pages=PAGES),
            RocksIndex(paths[1], writable=True),
        ]
        for path, opened in zip(paths, indexes):
            with opened as index:
                for answer in tree.known:
                    ids = reader.expand_runs(answer["entries"])
                    name = LedgerId(scope, answer["ledger"])
                    index.put_many(name, ids, range(1, len(ids) + 1))
                    index.put(answer["ledger"], 3, 77)
            with open_index(path) as found:
                assert [answer["ledger"] for answer in tree.known] == [
                    name.ledger for name in found.ledgers(scope)
                ]
                for answer in tree.known:
                    available = found.availability(LedgerId(scope, answer["ledger"]))

                    assert answer["entries"] == available.ranges().tolist()
                    assert [3] == found.entries(answer["ledger"]).tolist()
            if tree.known:
                assert (path / "current" / "BKSTORE-128").is_file()


def raw_idx(path: Path) -> tuple[int, bytes, int, bytes, np.ndarray]:
    """Return (version, master key, state bits, explicit LAC, slots), by struct and numpy alone."""
    data = path.read_bytes()
    magic, version, length = struct.unpack_from(">4sii", data)
    assert b"BKLE" == magic
    key = data[12 : 12 + length]
    (bits,) = struct.unpack_from(">I", data, 12 + length)
    lac = b""
    if version >= 1:
        (lac_length,) = struct.unpack_from(">i", data, 16 + length)
        lac = data[20 + length : 20 + length + lac_length]
    return version, key, bits, lac, np.frombuffer(data, ">i8", offset=HEADER).astype(np.int64)


def golden_files(root: Path) -> list[tuple[Path, Path]]:
    """Return (file, its path below current/) of every index file of a tree."""
    return [
        (path, path.relative_to(current))
        for current in sorted(root.rglob("current"))
        for path in sorted(current.rglob("*.idx"))
    ]


def check_same_bytes(root: Path, page_size: int, scratch: Path) -> int:
    """Write each index file of a real tree again; return how many were compared."""
    writers = {
        version: HierarchicalIndex(
            scratch / f"v{version}", writable=True, header_version=version, page_size=page_size
        )
        for version in (0, 1)
    }
    compared = 0
    for path, relative in golden_files(root):
        version, key, bits, lac, slots = raw_idx(path)
        ledger = int(path.stem, 16)
        entries = np.flatnonzero(slots)
        index = writers[version]
        index.put_many(ledger, entries, slots[entries])
        index.set_state(ledger, LedgerState(key, bool(bits & 1), False, lac or None))
        index.flush()  # which gives the file its name
        written = (scratch / f"v{version}" / "current" / relative).read_bytes()
        real = path.read_bytes()
        if bits & ~1 or (len(real) - HEADER) % page_size:
            continue  # state bits that no API sets, or another page size
        if entries.size == 0 or entries[-1] < slots.size - page_size // 8:
            # The real file ends with pages that hold nothing any more; ours never had them.
            real = real[: len(written)]

            assert not np.any(slots[(len(written) - HEADER) // 8 :])
        compared += 1

        assert real == written, relative
    for index in writers.values():
        index.close()
    return compared


class TestBytes:
    """Our files against the real ones."""

    def test_index_files(self, tree: Any, tmp_path: Path) -> None:
        """An index file written from the same content has the same path and the same bytes."""
        if tree.layout != "idx":
            pytest.skip("index files only")
        compared = check_same_bytes(tree.root, tree.options.get("page_size", 8192), tmp_path)

        assert 0 < compared or not golden_files(tree.root)

    def test_index_files_of_clusters(
        self, cluster: tuple[Path, dict[str, Any]], tmp_path: Path
    ) -> None:
        """The same for the bookies of a cluster, entries zeroed in the index included."""
        root, document = cluster
        if document["storage"] == "db":
            pytest.skip("index files only")
        for bookie_id in document["bookies"]:
            assert 0 < check_same_bytes(root / bookie_id, 8192, tmp_path / bookie_id)

    def test_database_rows(self, tree: Any, reader: Any, tmp_path: Path) -> None:
        """Our databases have the keys and values of the real ones."""
        if tree.layout != "rocksdb":
            pytest.skip("databases only")
        with BookieDir(tree.root) as bookie, RocksIndex(tmp_path, writable=True) as index:
            for ledger in bookie.index.ledgers():
                index.put_many(ledger, *bookie.index.items(ledger))
            for answer in tree.known:
                index.set_state(answer["ledger"], state_of(answer, reader, True))
            currents = bookie.folders.index
        if len(currents) > 1:
            pytest.skip("the rows of several databases")

        assert raw_rows(currents[0] / "locations") == raw_rows(tmp_path / "current" / "locations")

        real = raw_rows(currents[0] / "ledgers")
        ours = raw_rows(tmp_path / "current" / "ledgers")

        assert {key for key in real if key[0] < 0x80} == set(ours)
        for answer in tree.known:
            if not any(reader.refused(answer[k]) for k in ("fenced", "explicit_lac_hex")):
                key = answer["ledger"].to_bytes(8, "big")

                assert real[key].removesuffix(b"\x28\x00") == ours[key]  # limbo: false, said


def raw_rows(path: Path) -> dict[bytes, bytes]:
    """Return every row of a database, through rocksdict alone, from a copy."""
    import shutil
    import tempfile

    from rocksdict import AccessType, Options, Rdict

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "db"
        shutil.copytree(path, copy)
        database = Rdict(str(copy), Options(raw_mode=True), access_type=AccessType.read_only(False))
        try:
            return {bytes(key): bytes(value) for key, value in database.items()}
        finally:
            database.close()
