"""`bkstore serve` with a `bk_server.conf`: what it honors, what it says, what goes before it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.formats import cookie
from bkstore.storage.bookie import Bookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from bkstore.wire import v2
from bkstore.wire.frames import frame
from bkstore.wire.status_codes import Status
from tests.cluster.store.samples import new_uri
from tests.storage.directories.served_confs import served
from tests.wire.server.peer import Peer, add

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs the interface lo")
DIRECTORIES = "ledgerDirectories={0}/ledgers\njournalDirectories={0}/journal\n"


def _conf(folder: Path, *lines: str) -> Path:
    path = folder / "bk_server.conf"
    path.write_text(DIRECTORIES.format(folder) + "\n".join(lines))
    return path


@LINUX
def test_what_the_command_takes_from_the_conf(tmp_path: Path) -> None:
    """Storage, host, id, sizes of logs and frames are as the conf says."""
    conf = _conf(
        tmp_path,
        "ledgerStorageClass : org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "bookieId b-one",
        "listeningInterface lo",
        "bookiePort 0",
        "allowEphemeralPorts true",
        "nettyMaxFrameSizeBytes = 20000",
        "journalMaxBackups=0",
    )
    with served(conf, "--create") as bookie:
        assert [f"bkstore: serving {conf} (interleaved storage) on 127.0.0.1:"] == [
            line.removesuffix(str(bookie.address[1])) for line in bookie.said
        ]
        with Peer(bookie.address) as peer:
            assert peer.ask(add(7, 0))[0].status is Status.EOK
            peer.send(frame(bytes(30_000)))
            assert peer.ends()
    written = cookie.decode((tmp_path / "ledgers/current/VERSION").read_bytes())

    assert "b-one" == written.bookie_id


@LINUX
def test_the_command_line_goes_first(tmp_path: Path) -> None:
    """Options of the command win over keys of the conf, ``none`` over a cluster and an admin."""
    conf = _conf(
        tmp_path,
        "ledgerStorageClass=org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "metadataServiceUri=zk://127.0.0.1:1/ledgers",
        "httpServerEnabled=true",
        "bookiePort=1",
        "listeningInterface=lo",
    )
    options = "--storage", "sorted", "--metadata", "none", "--http", "none", "--host", "127.0.0.2"
    with served(conf, "--create", "--port", "0", *options) as bookie:
        (line,) = bookie.said

        assert "(sorted storage) on 127.0.0.2:" in line


def test_what_is_not_honored_is_said_once(tmp_path: Path) -> None:
    """One message names all keys that would change the bookie and do not, in lines of a screen."""
    conf = _conf(
        tmp_path,
        "journalSyncData=false",
        "localScrubInterval=10",
        "gcOverreplicatedLedgerWaitTime=5",
        "persistBookieStatusEnabled=true",
        "numAddWorkerThreads=9",
    )
    with served(conf, "--create", "--port", "0") as bookie:
        assert [
            "bkstore: bk_server.conf: not honored: gcOverreplicatedLedgerWaitTime,",
            "  journalSyncData, localScrubInterval, persistBookieStatusEnabled",
        ] == bookie.said[:-1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bookieAuthProviderFactoryClass : X", "bookieAuthProviderFactoryClass"),
        ("tlsProviderFactoryClass X", "tlsProviderFactoryClass: X is not supported"),
        ("diskUsageThreshold=x", "diskUsageThreshold: 'x' is not a number"),
        ("logSizeLimit=-1", "logSizeLimit: entry_log_size must be"),
    ],
)
def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    """What cannot be honored is refused before anything is made, in whatever form it stands."""
    conf = _conf(tmp_path, line)

    assert main(["serve", str(conf), "--create", "--port", "0"]) == 2
    assert said in capsys.readouterr().err
    assert [conf] == list(tmp_path.iterdir())


def test_another_id_than_the_cookies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Directories of another bookie are not served under the conf's id."""
    Bookie.open(_conf(tmp_path), bookie_id="a").close()

    assert main(["serve", str(_conf(tmp_path, "bookieId=b")), "--port", "0"]) == 2
    assert "of bookie 'a', not of 'b'" in capsys.readouterr().err


def test_the_admin_of_a_conf(tmp_path: Path) -> None:
    """`httpServerEnabled` has the admin listen on loopback, at the conf's port."""
    conf = _conf(tmp_path, "httpServerEnabled=true", "httpServerPort=0")
    with served(conf, "--create", "--port", "0") as bookie:
        assert bookie.process.stderr is not None
        assert bookie.process.stderr.readline().startswith("bkstore: HTTP admin on http://127.0")


def test_a_bookie_that_is_forced_to_be_read_only(tmp_path: Path) -> None:
    """`forceReadOnlyBookie` refuses adds, and reads go on."""
    conf = _conf(tmp_path)
    with served(conf, "--create", "--port", "0") as bookie, Peer(bookie.address) as peer:
        peer.ask(add(7, 0))
    conf = _conf(tmp_path, "forceReadOnlyBookie=true")
    with served(conf, "--port", "0") as bookie, Peer(bookie.address) as peer:
        assert "bkstore: read-only: forceReadOnlyBookie is set" == bookie.said[0]
        assert peer.ask(add(7, 1))[0].status is Status.EREADONLY
        assert peer.ask(v2.ReadRequest(7, 0))[0].status is Status.EOK


LEAST = 0.0001
"""A share that every disk of a machine that runs tests has in use."""


@pytest.mark.skipif(
    shutil.disk_usage("/").free == shutil.disk_usage("/").total, reason="an empty disk"
)
def test_full_disks(tmp_path: Path) -> None:
    """Above the threshold the bookie is read-only; where it may not be, it stops with an error."""
    full = f"diskUsageThreshold={LEAST}", "diskCheckInterval=20"
    conf = _conf(tmp_path, *full)
    with served(conf, "--create", "--port", "0") as bookie, Peer(bookie.address) as peer:
        assert "bkstore: read-only: all disks of ledger directories" in bookie.said[0]
        assert peer.ask(add(7, 0))[0].status is Status.EREADONLY
    conf = _conf(tmp_path, *full, "readOnlyModeEnabled=false")
    with served(conf, "--port", "0") as bookie:
        assert "bkstore: stopping, as readOnlyModeEnabled is false" in bookie.said
        assert 2 == bookie.process.wait(30)


def test_a_bookie_of_a_cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """The cluster of a conf, in its older form, and what clients are told there."""
    uri = new_uri(zookeeper)
    servers, _, root = uri.partition("://")[2].partition("/")
    with ZooKeeperStore.format(uri) as store:
        conf = _conf(
            tmp_path,
            f"zkServers {servers}",
            f"zkLedgersRootPath /{root}",
            "bookieId b-seven",
            "advertisedAddress 127.0.0.3",
        )
        with served(conf, "--create", "--port", "0") as bookie:
            assert f"bkstore: bookie b-seven is registered at zk+null://{servers}/{root}" in (
                bookie.said
            )
            info = store.service_info("b-seven")
            assert info is not None
            assert ("127.0.0.3", bookie.address[1]) == info.address
