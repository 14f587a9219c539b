"""Ledger metadata against the real BookKeeper: its bytes, its refusals, its paths, its clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import open_metadata
from bkstore.cluster.store.dump_store import DumpStore
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata import store_paths as paths
from bkstore.formats.metadata.serialized import decode, encode
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from tests.golden.data import load_json

STORE_CTIME = 1234567890123
STORED_WITH_CTIME = "ctime_stored"


@pytest.fixture(scope="module")
def vectors(golden: Path) -> Any:
    """Return the metadata vectors."""
    return load_json(golden / "bookkeeper" / "ledger_metadata_vectors.json")


def _metadata(fields: dict[str, Any], store_ctime: bool = False) -> LedgerMetadata:
    return LedgerMetadata(
        LedgerId.of(fields["ledger"]),
        fields["E"],
        fields["W"],
        fields["A"],
        tuple(Segment(s["first_entry"], tuple(s["ensemble"])) for s in fields["segments"]),
        state=fields["state"],
        last_entry_id=fields["last_entry"],
        length=fields["length"],
        digest_type=fields["digest_type"],
        password=bytes.fromhex(fields["password_hex"]) if fields["has_password"] else None,
        ctime=fields["ctime"],
        store_ctime=store_ctime,
        custom_metadata={k: bytes.fromhex(v) for k, v in fields["custom_metadata"].items()},
        version=fields["metadata_format_version"],
        c_token=fields["c_token"],
    )


def _written(vectors: Any) -> list[Any]:
    return [each for each in vectors["vectors"] if "error" not in each]


def test_all_vectors_are_read(vectors: Any) -> None:
    """The golden file has vectors of all three versions, inputs to parse, and paths."""
    versions = {each["written_from"]["metadata_format_version"] for each in _written(vectors)}

    assert {1, 2, 3} == versions
    assert len(vectors["vectors"]) > 30
    assert len(vectors["parse_only"]) > 12
    assert len(vectors["zookeeper_paths"]) > 12


def test_written_bytes(vectors: Any) -> None:
    """The bytes are those that the real class writes, in each version."""
    for each in _written(vectors):
        metadata = _metadata(each["written_from"], each["name"] == STORED_WITH_CTIME)
        written = encode(metadata)

        assert each["serialized_hex"] == written.hex(), each["name"]
        if "serialized_text" in each:
            assert each["serialized_text"].encode() == written


def test_not_written(vectors: Any) -> None:
    """Where the real class throws for want of a digest type and password, so do we, by name."""
    names = {each["name"] for each in vectors["vectors"] if "error" in each}
    without = LedgerMetadata(LedgerId.of(42), 3, 3, 3, (Segment(0, ("a", "b", "c")),))

    assert {"open_no_password", "closed_w_differs_from_a"} == names
    for version in (2, 3):
        with pytest.raises(InvalidArgument, match="needs a digest type and a password"):
            encode(without, version)


def test_read_back(vectors: Any) -> None:
    """What the real class wrote reads as what it read from it itself."""
    for each in _written(vectors):
        data = bytes.fromhex(each["serialized_hex"])
        found = decode(data, each["written_from"]["ledger"], strict=True)

        assert _metadata(each["parsed"], found.store_ctime) == found, each["name"]
        assert each["safe_string"] == found.to_safe_string()
        assert each["serialized_hex"] == encode(found).hex()


def test_ctime_of_the_store(vectors: Any) -> None:
    """The store's creation time counts where versions 2 and 3 have none, never in version 1."""
    key = f"ctime_when_parsed_with_store_ctime_{STORE_CTIME}"
    for each in _written(vectors):
        found = decode(bytes.fromhex(each["serialized_hex"]), 42, STORE_CTIME)

        assert each[key] == found.ctime, each["name"]
        assert each["serialized_hex"] == encode(found).hex()


def test_custom_metadata_in_another_order(vectors: Any) -> None:
    """The real class reorders custom metadata; its second form reads as the same metadata."""
    twice = [each for each in _written(vectors) if "serialized_again_hex" in each]

    assert twice
    for each in twice:
        again = bytes.fromhex(each["serialized_again_hex"])

        assert _metadata(each["parsed"]) == decode(again, 42)
        assert again == encode(decode(again, 42))


def test_inputs_to_parse(vectors: Any) -> None:
    """Hand-made inputs read as the real class reads them, or are refused where it refuses."""
    for each in vectors["parse_only"]:
        data = bytes.fromhex(each["input_hex"])
        if "parse_error" in each:
            with pytest.raises(CorruptionError):
                decode(data, 42)
            continue
        found = decode(data, 42)

        assert _metadata(each["parsed"], found.store_ctime) == found, each["name"]
        assert each["safe_string"] == found.to_safe_string()
        assert each.get("serialized_again_hex", each["input_hex"]) == encode(found).hex()


def test_paths(vectors: Any) -> None:
    """Each manager's path of each ledger, and back; the legacy one cuts long ids if asked to."""
    for each in vectors["zookeeper_paths"]:
        ledger = each["ledger"]
        flat = f"/ledgers{paths.flat_path(ledger)}"
        short = paths.short_path(ledger, compat="bookkeeper")

        assert each["hierarchical"] == paths.hierarchical_path(ledger)
        assert each["long_hierarchical"] == paths.long_path(ledger) == paths.tree_path(ledger)
        assert each["hierarchical_short_form"] == short
        assert each["manager_FlatLedgerManager"] == flat
        assert each["manager_LegacyHierarchicalLedgerManager"] == f"/ledgers{short}"
        assert each["parsed_back"] == {
            form: parsed.ledger
            for form in ("hierarchical", "long_hierarchical")
            if (parsed := paths.parse_path(each[form])) is not None
        }
        if ledger >= 10**10:
            with pytest.raises(InvalidArgument, match="more digits"):
                paths.short_path(ledger)
        else:
            assert short == paths.short_path(ledger)


def test_cluster_metadata(cluster: tuple[Path, dict[str, Any]]) -> None:
    """Metadata of a real cluster reads as the client saw it, and is written back as it was."""
    _, document = cluster
    listed = document["after"]["state"]["ledgers"]

    assert listed
    for each in listed:
        data = bytes.fromhex(each["metadata_hex"])
        found = decode(data, each["ledger"], strict=True)

        assert each["segments"] == [
            {"first_entry": first, "ensemble": list(ensemble)} for first, ensemble in found.segments
        ]
        assert [each[key] for key in ("E", "W", "A", "state", "last_entry", "length")] == [
            *(found.ensemble_size, found.write_quorum_size, found.ack_quorum_size),
            *(found.state, found.last_entry_id, found.length),
        ]
        assert each["metadata_format_version"] == found.version
        assert each["digest_type"] == found.digest_type
        assert b"golden" == found.password
        assert data == encode(found)


@pytest.mark.parametrize("above", ["", "ledgers", "chroot/ledgers"])
@pytest.mark.parametrize(
    "path_of", [paths.flat_path, paths.short_path, paths.long_path, paths.hierarchical_path]
)
def test_cluster_dump(
    cluster: tuple[Path, dict[str, Any]], tmp_path: Path, above: str, path_of: Any
) -> None:
    """A folder dumped from ZooKeeper gives the cluster's metadata, whichever manager made it."""
    _, document = cluster
    listed = document["after"]["state"]["ledgers"]
    for each in listed:
        file = Path(f"{tmp_path}/{above}{path_of(each['ledger'])}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes.fromhex(each["metadata_hex"]))
    (tmp_path / above / "LAYOUT").write_text("1\nlongHierarchical:1")
    store = open_metadata(tmp_path)

    assert isinstance(store, DumpStore)
    assert sorted(each["ledger"] for each in listed) == [name.ledger for name in store.ledgers()]
    assert (f"{above}/LAYOUT".removeprefix("/"),) == store.other_files
    assert store.registered_bookies() is None
    for each in listed:
        expected = decode(bytes.fromhex(each["metadata_hex"]), each["ledger"])

        assert (expected, 0) == store.read(each["ledger"])
