"""TLS to a real ZooKeeper: for BookKeeper's tree and for Pulsar's; what cannot be trusted gets no
request."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.store.zookeeper.kazoo_client import KazooClient, tls_settings
from bkstore.errors import InvalidArgument, MetadataUnavailable
from bkstore.pulsar import LeakSearch, open_pulsar, parse_pulsar_location
from bkstore.pulsar.sources.zookeeper_nodes import ZooKeeperNodes
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.pulsar.samples import ledger, managed_ledger, owned, topic_path
from tests.wire.certificates import made_certificate, needs_openssl

pytestmark = [
    needs_openssl,
    # kazoo does not close sockets whose handshake failed.
    pytest.mark.filterwarnings("ignore:unclosed <ssl:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_VARIABLES = ("CA", "CERTIFICATE", "KEY")


class _SecureServer(NamedTuple):
    server: ZooKeeperServer
    address: str
    folder: Path  # of key.pem, cert.pem and both.pem


def _free_port() -> int:
    from bkstore.testing.zookeeper_server import _find_free_port

    return _find_free_port()


@pytest.fixture(scope="module", params=["none", "need"])
def secure(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_SecureServer]:
    """Yield a server with a secure port, which may require that clients identify themselves."""
    folder = tmp_path_factory.mktemp("tls")
    made_certificate(folder)
    port = _free_port()

    def spawn(command: list[str]) -> subprocess.Popen[bytes]:
        """Start the server with Netty, which its TLS needs."""
        class_path = command[command.index("-cp") + 1]
        jars = Path(class_path.split(":")[0]).parent.glob("netty*.jar")
        command[command.index("-cp") + 1] = ":".join([class_path, *map(str, jars)])
        with Path(command[-1]).open("a", encoding="utf-8") as config:
            config.write(
                f"secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n"
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
                f"ssl.keyStore.location={folder}/both.pem\n"
                f"ssl.trustStore.location={folder}/cert.pem\nssl.clientAuth={request.param}\n"
            )
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)

    with ZooKeeperServer(folder / "server", spawn=spawn) as server:
        yield _SecureServer(server, f"127.0.0.1:{port}", folder)


@pytest.fixture
def trusting(secure: _SecureServer, monkeypatch: pytest.MonkeyPatch) -> _SecureServer:
    """Return the server, with an environment in which it can be reached by TLS."""
    for variable, file in zip(_VARIABLES, ("cert.pem", "cert.pem", "key.pem")):
        monkeypatch.setenv(f"BKSTORE_ZOOKEEPER_{variable}", str(secure.folder / file))
    return secure


def test_both_trees(trusting: _SecureServer) -> None:
    """Ledgers are written and read by TLS, and Pulsar's nodes read."""
    uri = f"zk+hierarchical://{trusting.address}/ledgers"
    with ZooKeeperStore.format(uri, force=True) as store:
        for number in (1, 2):
            store.create(ledger(number, owned()))
    client = KazooClient(hosts=trusting.address, **tls_settings())
    client.start(30)
    client.ensure_path(topic_path("paid"))
    client.set(topic_path("paid"), managed_ledger(1))
    client.stop()
    client.close()
    nodes = open_pulsar(parse_pulsar_location(f"zk://{trusting.address}"))
    with ZooKeeperStore(uri, make_layout=False) as store:
        report = LeakSearch(store, nodes).run()
    nodes.close()

    assert [(2, "leaked"), (1, "referenced")] == [
        (each.ledger.ledger, each.ledger_class) for each in report.ledgers
    ]


def test_untrusted_server(
    trusting: _SecureServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server whose certificate is another's, or is for another host, has no connection; nor has
    a client without TLS."""
    made_certificate(tmp_path)
    monkeypatch.setenv("BKSTORE_ZOOKEEPER_CA", str(tmp_path / "cert.pem"))
    with pytest.raises(MetadataUnavailable, match="answered by TLS within 1 s"):
        ZooKeeperNodes([trusting.address], timeout=1)
    monkeypatch.setenv("BKSTORE_ZOOKEEPER_CA", str(trusting.folder / "cert.pem"))
    with pytest.raises(MetadataUnavailable, match="answered by TLS within 1 s"):
        ZooKeeperNodes([trusting.address.replace("127.0.0.1", "localhost")], timeout=1)
    for variable in _VARIABLES:
        monkeypatch.delenv(f"BKSTORE_ZOOKEEPER_{variable}")
    with pytest.raises(MetadataUnavailable, match="answered within 1 s"):
        ZooKeeperNodes([trusting.address], timeout=1)
    gc.collect()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"CA": "missing.pem"}, "BKSTORE_ZOOKEEPER_CA=missing.pem cannot be used: "),
        ({"CERTIFICATE": "a", "KEY": "b"}, "need BKSTORE_ZOOKEEPER_CA"),
        ({"CA": "cert.pem", "KEY": "key.pem"}, "need each other"),
        ({"CA": "cert.pem", "CERTIFICATE": "key.pem", "KEY": "key.pem"}, "cannot be used: "),
        ({"CA": "key.pem"}, "BKSTORE_ZOOKEEPER_CA=key.pem cannot be used: "),
    ],
)
def test_settings_that_cannot_be_used(
    values: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files that are missing or are no PEM files are refused before a connection is made."""
    made_certificate(tmp_path)
    monkeypatch.chdir(tmp_path)
    for variable, value in values.items():
        monkeypatch.setenv(f"BKSTORE_ZOOKEEPER_{variable}", value)

    with pytest.raises(InvalidArgument, match=message):
        tls_settings()
