"""Commands that take a service URI, where there is no cluster for them: one line each."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.errors import MissingDependency
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.worlds.zookeeper import raw_client

COMMANDS: dict[str, list[str]] = {
    "audit": ["audit", "URI"],
    "metadata list": ["metadata", "list", "URI"],
    "metadata show": ["metadata", "show", "URI", "7"],
    "metadata export": ["metadata", "export", "URI"],
    "serve": ["serve", "DIR", "--create", "--port", "0", "--bookie-id", "b1", "--metadata", "URI"],
}

Given = tuple[str, str]
"""A service URI, and what the line must say."""


def _without_kazoo(_: ZooKeeperServer, patched: pytest.MonkeyPatch) -> Given:
    for name in list(sys.modules):
        if name.startswith("bkstore.cluster.store.zookeeper.") and "service_uri" not in name:
            patched.delitem(sys.modules, name)
    patched.setitem(sys.modules, "kazoo", None)
    patched.setitem(sys.modules, "kazoo.client", None)
    lacking = MissingDependency.of("kazoo", "zookeeper", "a metadata store in ZooKeeper")
    return "zk://localhost:1/ledgers", str(lacking)


def _wrong(*_: Any) -> Given:
    return "etcd://a/b", "'etcd://a/b' is not a service URI of ZooKeeper"


def _nobody(_: ZooKeeperServer, patched: pytest.MonkeyPatch) -> Given:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert ZooKeeperStore.__init__.__kwdefaults__ is not None
    patched.setitem(ZooKeeperStore.__init__.__kwdefaults__, "timeout", 0.3)
    return f"zk://127.0.0.1:{port}/ledgers", f"no ZooKeeper at 127.0.0.1:{port} answered within"


def _unformatted(server: ZooKeeperServer, _: pytest.MonkeyPatch) -> Given:
    uri = new_uri(server)
    root = uri.partition("//")[2].partition("/")[2]
    return uri, f"/{root}/LAYOUT does not exist: has the cluster been initialized?"


def _with_layout(data: bytes, reason: str) -> Callable[..., Given]:
    def given(server: ZooKeeperServer, _: pytest.MonkeyPatch) -> Given:
        with ZooKeeperStore.format(new_uri(server)) as store:
            raw_client(store).set(f"{store.uri.root}/LAYOUT", data)
            return str(store.uri), f"{store.uri.root}/LAYOUT{reason}"

    return given


def _forbidden(server: ZooKeeperServer, _: pytest.MonkeyPatch) -> Given:
    from kazoo.security import make_acl

    with ZooKeeperStore.format(new_uri(server)) as store:
        nobody = make_acl("world", "anyone", write=True, admin=True)
        raw_client(store).set_acls(f"{store.uri.root}/LAYOUT", [nobody])
        problem = f"{store.uri.root}/LAYOUT: forbidden by ZooKeeper's access control list"
        return str(store.uri), problem


CONDITIONS: dict[str, Callable[..., Given]] = {
    "no kazoo": _without_kazoo,
    "wrong URI": _wrong,
    "nobody answers": _nobody,
    "no cluster": _unformatted,
    "foreign manager": _with_layout(
        b"2\norg.example.Other:1", ": the ledger manager org.example.Other is not supported"
    ),
    "another manager": _with_layout(
        b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1",
        " has flat, the service URI has hierarchical",
    ),
    "no layout": _with_layout(b"x\ny:1", ": offset 0"),
    "access list": _forbidden,
}


@pytest.mark.parametrize(
    "command",
    ["audit", "metadata list", "serve"]
    + [pytest.param(f"metadata {word}", marks=pytest.mark.long) for word in ("show", "export")],
)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_one_line_and_nothing_done(
    condition: str,
    command: str,
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2 and a line that names the thing; a usage error has the usage above it. No
    output, and no directory is made."""
    with pytest.MonkeyPatch.context() as patched:
        uri, reason = CONDITIONS[condition](zookeeper, patched)
        words = {"URI": uri, "DIR": str(tmp_path / "b1")}
        try:
            code = main([words.get(word, word) for word in COMMANDS[command]])
        except SystemExit as error:  # of the parser
            code = int(error.code or 0)
    out, err = capsys.readouterr()
    *above, line = err.splitlines()

    assert (2, "") == (code, out)
    assert reason in line
    assert not above or above[0].startswith("usage: ")
    assert not (tmp_path / "b1").exists()


def test_a_folder_that_an_access_list_forbids(
    zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What may not be listed is named; it does not count as empty."""
    from kazoo.security import make_acl

    with ZooKeeperStore.format(new_uri(zookeeper)) as store:
        nobody = make_acl("world", "anyone", write=True, admin=True)
        raw_client(store).set_acls(f"{store.uri.root}/available", [nobody])

        assert 2 == main(["audit", str(store.uri)])
    out, err = capsys.readouterr()

    assert ("", 1) == (out, err.count("\n"))
    assert f"{store.uri.root}/available: forbidden by ZooKeeper's access control list" in err


def test_a_textfile_without_prometheus_client(
    zookeeper: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--textfile without the package is told before anybody is asked."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bkstore.cli.terminal.needed_packages.missing_packages", lambda *n: [*n])

        assert 2 == main(["audit", "zk://127.0.0.1:1/l", "--textfile", str(tmp_path / "a.prom")])
    _, err = capsys.readouterr()

    assert 1 == err.count("\n")
    assert "--textfile needs prometheus_client: pip install" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["PLACE"], "only a service URI has bookies' addresses; give BOOKIE=DIR"),
        (["URI", "--offline"], "--offline needs directories: BOOKIE=DIR"),
        (["URI", "--rate", "0"], "rate must be a number of 1e-05 or more"),
        (["URI", "--looks", "-1"], "retries must be"),
        (["URI", "--look-delay", "-1"], "retry_delay must be"),
        (["URI", "--timeout", "0"], "timeout must be a number above 0"),
        (["URI", "--rate", "5", "--compat", "bookkeeper"], "rate cannot be used with compat"),
        (["URI", "--textfile", "F", "--resume", "F"], "F"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_words_that_do_not_fit(
    words: list[str],
    reason: str,
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Options that mean nothing, and an audit in which nobody could be asked: exit code 2."""
    uri = new_uri(zookeeper)
    ZooKeeperStore.format(uri).close()
    (tmp_path / "metadata.json").write_text('{"ledgers": []}')
    given = {"URI": uri, "PLACE": str(tmp_path / "metadata.json"), "F": str(tmp_path / "F")}
    try:
        code = main(["audit", *(given.get(word, word) for word in words)])
    except SystemExit as error:
        code = int(error.code or 0)
    out, err = capsys.readouterr()

    assert (2, "") == (code, out)
    assert reason in err.splitlines()[-1]
    assert not (tmp_path / "F").exists()
