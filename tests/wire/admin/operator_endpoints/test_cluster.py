"""`list_bookies`, `list_bookie_info`, `cluster_info`, `server_config`. Bodies are upstream's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkstore import Bookie
from bkstore.cluster import MemoryStore, ZooKeeperStore
from bkstore.formats.cookie import Cookie
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.network import RegisteredBookie
from bkstore.wire.admin import AdminServer
from tests.wire.admin.asking import TOKEN, ask, write

LIST, DISKS = "/api/v1/bookie/list_bookies", "/api/v1/bookie/list_bookie_info"
CLUSTER, CONFIG = "/api/v1/bookie/cluster_info", "/api/v1/config/server_config"

IN_A_CLUSTER = [
    *((path, "GET") for path in (LIST, DISKS, CLUSTER)),
    *(
        (f"/api/v1/autorecovery/{name}", "GET")
        for name in (
            *("status", "list_under_replicated_ledger", "who_is_auditor"),
            "lost_bookie_recovery_delay",
        )
    ),
    ("/api/v1/autorecovery/status?enabled=true", "PUT"),
    ("/api/v1/autorecovery/trigger_audit", "PUT"),
]


def cookie_of(bookie: str) -> Cookie:
    """Return some cookie."""
    return Cookie(5, bookie, ("j",), ("l",), instance_id="a0b1")


def test_bookies_by_kind(admin: AdminServer, store: ZooKeeperStore) -> None:
    """The writable ones, or the read-only ones; with their hosts where they are asked for."""
    assert (200, b"{ }") == ask(admin, LIST)[::2]
    for bookie, host, read_only in (("b1", "h1", False), ("b2", "h2", False), ("b3", "h3", True)):
        store.register(bookie, ServiceInfo.at(host, 3181), read_only=read_only)

    assert b'{\n  "b1" : null,\n  "b2" : null\n}' == ask(admin, LIST).body
    assert b'{\n  "b3" : null\n}' == ask(admin, LIST, type="ro").body
    assert {"b1": None, "b2": None} == ask(admin, LIST, type="rw", print_hostnames="no").json
    assert {"b1": "h1", "b2": "h2"} == ask(admin, LIST, print_hostnames="true").json


def test_disk_space_of_all(store: ZooKeeperStore, tmp_path: Path) -> None:
    """Each registered bookie is asked, those that do not answer are left out."""
    with (
        RegisteredBookie.open(store, tmp_path / "b1", bookie_id="b1") as first,
        RegisteredBookie.open(store, tmp_path / "b2", bookie_id="b2") as second,
        AdminServer(first.bookie, metadata=store) as admin,
    ):
        store.register("b3", ServiceInfo.at("127.0.0.1", 1))
        second.set_read_only(True)
        shown = ask(admin, DISKS).json
        total = shutil.disk_usage(tmp_path).total

    def row(count: int) -> str:
        digits = f"{count // 10**6 / 1000}".rstrip("0").rstrip(".")
        return f"Total: {count}({digits}GB)}}"

    assert 10**9 <= total < 5 * 10**11, "the units of this test are gigabytes"
    assert ["b1", "b2", "ClusterInfo: "] == list(shown)
    assert all(shown[name].startswith(": {Free: ") for name in ("b1", "b2"))
    assert all(shown[name].endswith(f", {row(total)},") for name in ("b1", "b2"))
    assert shown["ClusterInfo: "].startswith("{Free: ")
    assert shown["ClusterInfo: "].endswith(f", {row(2 * total)}")


def test_disk_space_of_none(admin: AdminServer, store: ZooKeeperStore) -> None:
    """Without a bookie that answers it is 404."""
    assert 404 == ask(admin, DISKS).status


def test_summary_of_the_cluster(admin: AdminServer, store: ZooKeeperStore) -> None:
    """Bookies are counted by their cookies and registrations; marks and the auditor are seen."""
    for bookie in ("b1", "b2", "b3"):
        store.write_cookie(bookie, cookie_of(bookie))
    store.register("b1", ServiceInfo.at("h1", 3181))
    store.register("b2", ServiceInfo.at("h2", 3181), read_only=True)

    assert (
        b'{\n  "auditorElected" : false,\n  "auditorId" : "",\n'
        b'  "clusterUnderReplicated" : false,\n'
        b'  "ledgerReplicationEnabled" : true,\n  "totalBookiesCount" : 3,\n'
        b'  "writableBookiesCount" : 1,\n  "readonlyBookiesCount" : 1,\n'
        b'  "unavailableBookiesCount" : 1\n}'
    ) == ask(admin, CLUSTER).body
    store.underreplication.vote("b1")
    store.underreplication.disable()
    store.mark_underreplicated(7, UnderreplicatedMark(None, ("b3",)))
    names = (
        *("auditorElected", "auditorId", "clusterUnderReplicated"),
        "ledgerReplicationEnabled",
    )
    assert [True, "b1", True, False] == [ask(admin, CLUSTER).json[name] for name in names]


@pytest.mark.parametrize("metadata", [None, MemoryStore()], ids=["none", "in memory"])
def test_no_cluster(bookie: Bookie, metadata: MemoryStore | None) -> None:
    """Where the bookie is in none, or in one of another kind, that is said."""
    with AdminServer(bookie, token=TOKEN, metadata=metadata) as admin:
        for path, method in IN_A_CLUSTER:
            reply = write(admin, path, method)

            assert (503, "the bookie is not in a cluster") == (reply.status, reply.line[:30])


# -- settings


def test_settings_in_effect(tmp_path: Path) -> None:
    """Settings have upstream's names, and values as text; what the server adds is beside them."""
    places = {
        "ledger_dirs": [tmp_path / "l1", tmp_path / "l2"],
        "journal_dirs": [tmp_path / "j"],
        "index_dirs": [tmp_path / "i1", tmp_path / "i2"],
    }
    with (
        Bookie.open(None, "db", bookie_id="b1", **places) as bookie,  # type: ignore[arg-type]
        AdminServer(bookie, token=TOKEN) as admin,
    ):
        admin.controls.settings = {"bookiePort": 3181, "httpServerEnabled": True}
        shown = ask(admin, CONFIG).json
        changed = write(admin, CONFIG, "PUT", {"bookiePort": 1})

    assert {
        "bookieId": "b1",
        "bookiePort": "3181",
        "httpServerEnabled": "true",
        "indexDirectories": f"{tmp_path}/i1,{tmp_path}/i2",
        "journalDirectories": f"{tmp_path}/j",
        "ledgerDirectories": f"{tmp_path}/l1,{tmp_path}/l2",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "logSizeLimit": "1073741824",
    } == shown
    assert TOKEN not in str(shown)
    assert 404 == changed.status
