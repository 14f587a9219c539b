"""`bkstore metadata`: rows, the file, exit codes, one line for each thing that is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import DirectoryStore, MetadataStore, ZooKeeperStore, open_metadata, snapshot
from bkstore.errors import MissingDependency
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import Segment
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import IDS, metadata_of, new_uri

CLOSED = {"state": "CLOSED", "last_entry_id": 9, "length": 90, "store_ctime": True, "ctime": 5}


def _fill(store: MetadataStore) -> None:
    for name in IDS:
        store.create(metadata_of(name))
    parts = (Segment(0, ("b1", "b2")), Segment(4, ("b1", "b3")))
    store.create(metadata_of(8, segments=parts, **CLOSED))
    store.mark_underreplicated(8, UnderreplicatedMark(1.5e9, ("b3",)))
    store.register_bookie("b1")


@pytest.fixture(params=["directory", "file", "zookeeper"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Yield where the same metadata are: in a store's folder, a file, a ZooKeeper."""
    if request.param == "zookeeper":
        with ZooKeeperStore.format(new_uri(request.getfixturevalue("zookeeper"))) as store:
            _fill(store)
            yield str(store.uri)
            return
    _fill(DirectoryStore(tmp_path / "store", sync=False))
    if request.param == "directory":
        yield f"file:{tmp_path}/store"
        return
    assert 0 == main(["metadata", "export", str(tmp_path / "store"), "-o", str(tmp_path / "f")])
    yield str(tmp_path / "f")


def _rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert 0 == main(["metadata", *words, "--format", "jsonl"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_list(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A row a ledger, of the scope that was asked for, in unsigned order."""
    rows = _rows(capsys, "list", place)
    (closed,) = [row for row in rows if row["state"] == "CLOSED"]
    every = _rows(capsys, "list", place, "--all-scopes")

    assert [0, 7, 8, 2**31, 2**63 - 1] == [row["ledger_id"] for row in rows]
    assert (9, 90, 2, True, 5, 3) == tuple(
        closed[name]
        for name in (
            "last_entry_id",
            "length",
            "segments",
            "underreplicated",
            "ctime",
            "metadata_format_version",
        )
    )
    assert {None} == {row["last_entry_id"] for row in rows if row["state"] == "OPEN"}
    assert {LedgerId.of(8), *IDS} == {
        LedgerId(row["scope_id"] % 2**64, row["ledger_id"] % 2**64) for row in every
    }
    assert [5] == [
        row["ledger_id"] for row in _rows(capsys, "list", place, "--ledger-scope-id", str(2**63))
    ]


OWNED = {
    "application": b"pulsar",
    "component": b"managed-ledger",
    "pulsar/managed-ledger": b"shop/orders/persistent/paid-partition-0",
    "pulsar/cursor": b"billing",
}


def test_owners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ledger's owner is in its row and below its segments, and chooses the rows."""
    store = DirectoryStore(tmp_path / "store", sync=False)
    store.create(metadata_of(1, custom_metadata=OWNED))
    store.create(metadata_of(2, custom_metadata={"application": b"pulsar"}))
    store.create(metadata_of(3))
    place = str(tmp_path / "store")
    rows = {row["ledger_id"]: row for row in _rows(capsys, "list", place)}
    topic = "persistent://shop/orders/paid-partition-0"

    assert ("pulsar", "managed-ledger", "shop", "shop/orders", topic, 0, "billing", None) == tuple(
        rows[1][name]
        for name in (
            *("application", "component", "tenant", "namespace"),
            *("topic", "partition", "cursor", "schema"),
        )
    )
    assert ("pulsar", None, None) == tuple(
        rows[2][name] for name in ("application", "component", "topic")
    )
    assert rows[3]["application"] is None
    for words in (
        ["--topic", "shop/orders/paid"],
        ["--namespace", "shop/*"],
        ["--tenant", "shop", "--component", "managed-ledger"],
    ):
        assert [1] == [row["ledger_id"] for row in _rows(capsys, "list", place, *words)], words
    # A choice without a ledger is not an empty list of all ledgers: it has an exit code of its own.
    assert 3 == main(["metadata", "list", place, "--tenant", "shop", "--component", "schema"])
    assert 0 == main(["metadata", "show", place, "1"])
    assert f"owner: pulsar managed-ledger, {topic}, cursor billing" in capsys.readouterr().err
    assert 0 == main(["metadata", "show", place, "3"])
    assert "owner" not in capsys.readouterr().err


def test_show(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A row a segment with both ends; the rest, without the password, goes to stderr."""
    assert 0 == main(["metadata", "show", place, "8", "--format", "csv"])
    out, err = capsys.readouterr()

    assert [
        "scope_id,ledger_id,first_entry,last_entry,ensemble",
        '0,8,0,3,"b1, b2"',
        '0,8,4,9,"b1, b3"',
    ] == out.splitlines()
    assert "state=CLOSED" in err
    assert "pw" not in err
    assert "marked as underreplicated: b3" in err
    assert 1 == main(["metadata", "show", place, "99"])
    assert "no metadata of ledger 99" in capsys.readouterr().err


def test_export(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file says what the store does: ledgers, bookies, marks; passwords when asked for."""
    file = tmp_path / "out.json"

    assert 0 == main(["metadata", "export", place, "-o", str(file)])
    told = snapshot(open_metadata(file))
    assert sorted([LedgerId.of(8), *IDS]) == [each.ledger for each in told.ledgers]
    assert frozenset({"b1"}) == told.registered_bookies
    assert {LedgerId.of(8): UnderreplicatedMark(1.5e9, ("b3",))} == told.underreplicated
    assert {None} == {each.password for each in told.ledgers}
    assert "9 ledgers exported" in capsys.readouterr().err
    assert 0 == main(["metadata", "export", place])
    assert json.loads(capsys.readouterr().out) == json.loads(file.read_text())


def test_passwords(tmp_path: Path) -> None:
    """With the option the file has the passwords, and only its owner may read it."""
    _fill(DirectoryStore(tmp_path / "store", sync=False))
    file = tmp_path / "out.json"
    main(["metadata", "export", str(tmp_path / "store"), "-o", str(file), "--show-passwords"])

    assert {b"pw"} == {each.password for each in snapshot(open_metadata(file)).ledgers}
    assert 0 == file.stat().st_mode & 0o077


def test_damage(zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A ledger whose metadata cannot be read is told with its path, and the others are there."""
    with ZooKeeperStore.format(new_uri(zookeeper)) as store:
        _fill(store)
        store._connection.client.set(f"{store.uri.root}/00/0000/L0007", b"junk")
        uri = str(store.uri)
    for command in ("list", "export"):
        assert 1 == main(["metadata", command, uri])
        out, err = capsys.readouterr()
        assert f"ledger 7: {store.uri.root}/00/0000/L0007: offset 0: " in err
        assert "8" in out


def test_other_commands_take_uris(
    zookeeper: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`audit` and `check` read the metadata of a running cluster, and write nothing there."""
    (tmp_path / "b1" / "current").mkdir(parents=True)
    with ZooKeeperStore.format(new_uri(zookeeper)) as store:
        _fill(store)
        store.clear_mark(8)
        uri = str(store.uri)
        raw = store._connection.client
        before = raw.get(store.uri.root)[1], raw.get(f"{store.uri.root}/00/0000")[1]

        assert 1 == main(["audit", uri, f"b1={tmp_path}/b1", "--looks", "0", "--format", "jsonl"])
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {8} == {row["ledger_id"] for row in rows if row["bookie"] == "b1"}
        assert before == (raw.get(store.uri.root)[1], raw.get(f"{store.uri.root}/00/0000")[1])


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        (
            "etcd://a/b",
            "not a service URI of ZooKeeper, such as zk+hierarchical://host:2181/ledgers",
        ),
        ("zk+tree://a/ledgers", "unknown ledger manager 'tree'"),
        ("zk://a,b/ledgers", "separate servers by ;"),
    ],
)
def test_wrong_uris(capsys: pytest.CaptureFixture[str], uri: str, reason: str) -> None:
    """A wrong service URI is told before anybody is asked, by every command that takes one."""
    for words in (
        ["metadata", "list", uri],
        ["audit", uri, "d"],
        ["check", "d", "--metadata", uri],
    ):
        with pytest.raises(SystemExit) as caught:
            main(words)

        assert 2 == caught.value.code
        assert reason in capsys.readouterr().err


def test_no_cluster(zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A root without a cluster, or with another manager, is told in one line."""
    ZooKeeperStore.format(uri := new_uri(zookeeper, "flat")).close()
    wrong = uri.replace("+flat", "+hierarchical")
    for place, reason in (
        (new_uri(zookeeper), "LAYOUT does not exist: has the cluster been initialized?"),
        (wrong, "LAYOUT has flat, the service URI has hierarchical"),
    ):
        assert 2 == main(["metadata", "list", place])
        err = capsys.readouterr().err
        assert reason in err
        assert 1 == err.count("\n")


def test_without_kazoo() -> None:
    """Without kazoo one line names what to install, and what needs none works."""
    script = (
        "import sys; sys.modules['kazoo'] = None\n"
        "from bkstore.cli.main import main\n"
        "sys.exit(main(['metadata', 'list', 'zk://localhost:1/ledgers']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    lacking = MissingDependency.of("kazoo", "zookeeper", "a metadata store in ZooKeeper")

    assert (2, f"bkstore: {lacking}\n") == (done.returncode, done.stderr)
