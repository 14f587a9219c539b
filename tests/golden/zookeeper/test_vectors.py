"""Paths and bytes of ZooKeeper's nodes against the real classes, one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from bkstore.cluster.store.zookeeper.ledger_tree import LedgerTree
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata.bookie_ids import check_bookie_id
from bkstore.formats.metadata.ledger_layout import (
    LedgerLayout,
    Manager,
    decode_layout,
    encode_layout,
)
from bkstore.formats.metadata.service_info import Endpoint, decode_service_info, encode_service_info
from bkstore.formats.metadata.underreplication import (
    decode_check_time,
    decode_mark,
    encode_check_time,
    encode_mark,
    lock_path,
    mark_path,
    parse_mark_path,
)
from bkstore.ids import LedgerId
from tests.golden.data import load_json


@pytest.fixture(scope="module")
def vectors(golden: Path) -> Any:
    """Return the answers of single real classes."""
    return load_json(golden / "zookeeper" / "vectors.json")


def test_paths(vectors: Any) -> None:
    """Each manager keeps a ledger, its mark and its lock where the real one does."""
    for each in vectors["paths"]:
        name = LedgerId.of(each["id"])
        for manager in get_args(Manager):
            path = each["long" if manager == "longhierarchical" else manager]
            tree = LedgerTree(manager)
            if path is None:
                with pytest.raises(InvalidArgument):
                    tree.path_of(name)
                continue

            assert path == tree.path_of(name)
            assert name == tree.parse_path(path)
            above = path.rpartition("/")[0]
            while above:
                assert tree.is_folder(above)
                above = above.rpartition("/")[0]
        assert (each["mark"], each["lock"]) == (mark_path(name), lock_path(name))
        assert name == parse_mark_path(each["mark"])
    assert len(vectors["paths"]) > 30


def test_bookie_ids(vectors: Any) -> None:
    """An id is taken if the real class takes it."""
    for each in vectors["bookie_ids"]:
        if each["valid"]:
            assert each["id"] == check_bookie_id(each["id"])
        else:
            with pytest.raises(InvalidArgument):
                check_bookie_id(each["id"])
    assert {True, False} == {each["valid"] for each in vectors["bookie_ids"]}


def test_layouts(vectors: Any) -> None:
    """LAYOUT is read and refused as the real class does, and written again alike."""
    for each in vectors["layouts"]:
        data = each["text"].encode()
        if "error" in each:
            with pytest.raises(CorruptionError):
                decode_layout(data)
            continue
        found = decode_layout(data)

        assert (each["factory"], each["manager_version"], each["layout_version"]) == found
        assert each["written_again"].encode() == encode_layout(found)
    managers = {decode_layout(encode_layout(LedgerLayout.of(m))).manager for m in get_args(Manager)}
    assert set(get_args(Manager)) == managers


def test_service_infos(vectors: Any) -> None:
    """A registration is read as the real client does; what it hangs on has no address here."""
    for at, each in enumerate(vectors["service_infos"]):
        data = bytes.fromhex(each["data_hex"] or "")
        if "error" in each:
            if data:
                with pytest.raises(CorruptionError):
                    decode_service_info(data, each["bookie_id"])
            else:
                assert decode_service_info(data, each["bookie_id"]).address is None
            continue
        found = decode_service_info(data, each["bookie_id"])
        endpoints = [
            Endpoint(**{**one, "auth": (*one["auth"],), "extensions": (*one["extensions"],)})
            for one in each["endpoints"]
        ]

        assert (tuple(endpoints), each["properties"]) == found
        if data and at < 5 and len(found.properties) < 2:
            assert data == encode_service_info(found)
    assert len(vectors["service_infos"]) > 12


def test_marks(vectors: Any) -> None:
    """A mark is read and refused as the real class does, and written again alike."""
    for each in vectors["marks"]:
        data = each["text"].encode()
        if "error" in each:
            with pytest.raises(CorruptionError):
                decode_mark(data)
            continue
        found = decode_mark(data)
        ctime = each["ctime"]

        assert tuple(each["replicas"]) == found.missing_bookies
        assert (None if ctime in (None, -1) else ctime / 1000) == found.marked_at
        if ctime != -1:
            assert each["written_again"].encode() == encode_mark(found)


def test_check_times(vectors: Any) -> None:
    """Check times are the real class's bytes, -1 and the ends of 64 bits too."""
    for each in vectors["check_times"]:
        assert bytes.fromhex(each["data_hex"]) == encode_check_time(each["ms"])
        assert each["ms"] == decode_check_time(bytes.fromhex(each["data_hex"]))
    assert -1 == decode_check_time(b"")
    for data in (b"\x08", b"\x10\x01", b"\x08\x01\x00", b"\x08" + b"\xff" * 10):
        with pytest.raises(CorruptionError, match="not a check time"):
            decode_check_time(data)
