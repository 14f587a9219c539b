"""`bkstore serve --http`: an admin beside the bookie's server, which counts what that answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from bkstore.cli.main import main
from bkstore.cli.server_process import StateChanges
from bkstore.errors import InvalidArgument, ReadOnlyError
from bkstore.formats.entry import Coder, Entry
from bkstore.network.settings import ServerSettings
from bkstore.storage.bookie import Bookie
from bkstore.wire.client import WireClient
from tests.wire.admin.asking import KEY, TOKEN

pytest.importorskip("aiohttp")


@contextmanager
def served(*words: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int], str]]:
    """Yield a process of `bkstore serve`, where its bookie listens, and the admin's URL."""
    command = [sys.executable, "-m", "bkstore", "serve", *words, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        host, _, port = process.stderr.readline().split()[-1].rpartition(":")
        line = process.stderr.readline()
        assert line.startswith("bkstore: HTTP admin on http://"), line
        yield process, (host, int(port)), line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def test_an_admin_beside_the_server(tmp_path: Path) -> None:
    """What clients write is seen by the admin, their requests are in its metrics, and the token
    of the file lets delete; a signal stops both in order."""
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    words = str(tmp_path / "b"), "--create", "--http", "0", "--http-token-file", str(token)
    coder = Coder("CRC32C", "pw")
    with served(*words) as (process, address, url):
        with WireClient(address) as client:
            for entry in range(3):
                client.add_entry(coder.encode(Entry(7, entry, entry - 1, 5, b"hello")), KEY)
            client.add_entry(coder.encode(Entry(8, 0, -1, 5, b"hello")), KEY)
            client.read_entries(7, 0, 3)
            assert b"OK" == urlopen(f"{url}/api/v1/bookie/is_ready").read()
            settings = json.load(urlopen(f"{url}/api/v1/config/server_config"))
            for wanted in (True, False):
                put = Request(f"{url}/api/v1/bookie/state/readonly", method="PUT")
                put.add_header("Authorization", f"Bearer {TOKEN}")
                put.data = json.dumps({"readOnly": wanted}).encode()
                assert {"readOnly": wanted} == json.load(urlopen(put))
                with pytest.raises(ReadOnlyError) if wanted else nullcontext():
                    client.add_entry(coder.encode(Entry(8, 1, 0, 5, b"hello")), KEY)
        shown = json.load(urlopen(f"{url}/api/v1/ledger/read?ledger_id=7"))
        text = urlopen(f"{url}/metrics").read().decode()
        delete = Request(f"{url}/api/v1/ledger/delete?ledger_id=7", method="DELETE")
        with pytest.raises(HTTPError, match="401"):
            urlopen(delete)
        delete.add_header("Authorization", f"Bearer {TOKEN}")
        said = json.load(urlopen(delete))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)

    assert dict.fromkeys("012", "hello") == shown
    assert (str(address[1]), url.rpartition(":")[2]) == (
        settings["bookiePort"],
        settings["httpServerPort"],
    )
    assert url.startswith("http://127.0.0.1:")
    assert (
        'bkstore_server_requests_total{operation="ADD_ENTRY",protocol="v2",status="EOK"} 5.0'
        in text
    )
    assert "bookkeeper_server_BATCH_READ_ENTRY_REQUEST_count 1.0" in text
    assert ("Deleted ledger: 7", 0) == (said, process.returncode)
    assert [
        "bkstore: read-only: an operator requested it",
        "bkstore: writable again",
        "bkstore: stopping",
    ] == [line.partition(" (")[0] for line in err.splitlines()]
    with Bookie.open(tmp_path / "b") as bookie:
        assert [8] == [name.ledger for name in bookie.ledgers()]


def test_what_a_conf_says_of_orders(tmp_path: Path) -> None:
    """What a conf sets is shown; a bookie that it keeps writable is not made read-only."""
    token, conf = tmp_path / "token", tmp_path / "bk_server.conf"
    token.write_text(TOKEN)
    places = f"ledgerDirectories={tmp_path}/l\njournalDirectories={tmp_path}/j\n"
    conf.write_text(f"{places}journalMaxBackups: 3\nreadOnlyModeEnabled=false\n")
    words = str(conf), "--create", "--http", "0", "--http-token-file", str(token)
    with served(*words) as (process, _, url):
        settings = json.load(urlopen(f"{url}/api/v1/config/server_config"))
        put = Request(f"{url}/api/v1/bookie/state/readonly", b'{"readOnly": true}', method="PUT")
        put.add_header("Authorization", f"Bearer {TOKEN}")
        with pytest.raises(HTTPError) as refused, urlopen(put):
            pass
        line = refused.value.read().decode()
        shown = json.load(urlopen(f"{url}/api/v1/bookie/state"))
        running = process.poll() is None

    assert ("3", f"{tmp_path}/l") == (settings["journalMaxBackups"], settings["ledgerDirectories"])
    assert (400, "readOnlyModeEnabled is false") == (refused.value.code, line.partition(":")[0])
    assert (True, False, True) == (running, shown["readOnly"], shown["running"])


def test_orders_that_settings_forbid() -> None:
    """Without a read-only mode, or where that is forced, an order to the contrary is refused."""
    orders: list[bool] = []
    for settings, forbidden in (
        (ServerSettings(stop_when_full=True), True),
        (ServerSettings(read_only=True), False),
    ):
        order = StateChanges(settings).guard_set_read_only(orders.append)
        order(not forbidden)
        with pytest.raises(InvalidArgument, match="the bookie stays"):
            order(forbidden)

    assert [False, True] == orders


def test_an_admin_beyond_loopback(tmp_path: Path) -> None:
    """A line says what it means; names that were given are the machine's."""
    words = str(tmp_path / "b"), "--create", "--http", "0.0.0.0:0", "--http-name", "bookie.test"
    with served(*words) as (process, _, url):
        assert process.stderr is not None
        line = process.stderr.readline()
        statuses = {}
        for host in ("bookie.test", "other.test"):
            try:
                statuses[host] = urlopen(Request(f"{url}/metrics", headers={"Host": host})).status
            except HTTPError as error:
                with error:
                    statuses[host] = error.code

    assert "the HTTP admin is not on loopback: anyone who reaches it can read all payloads" in line
    assert {"bookie.test": 200, "other.test": 403} == statuses


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--http", "x"], "--http 'x' is not [HOST:]PORT"),
        (["--http", "70000"], "--http '70000' is not [HOST:]PORT"),
        (["--http", "::1:80"], "--http '::1:80' is not [HOST:]PORT"),
        (["--http", "1:2:3"], "--http '1:2:3' is not [HOST:]PORT"),
        (["--http-token-file", "token"], "--http-token-file requires --http"),
        (["--http-name", "bookie.example.org"], "--http-name requires --http"),
        (["--http", "0", "--http-name", "a..b"], "--http-name must be a host name or address"),
        (["--http", "0", "--http-token-file", "none"], "none: No such file or directory"),
        (["--http", "0", "--http-token-file", "short"], "short: a token has 16 to 1024"),
        (["--http", "0", "--http-token-file", "binary"], "binary: a token has 16 to 1024"),
        (["--http", "203.0.113.1:0"], "cannot listen on 203.0.113.1:0: "),
    ],
    ids=str,
)
def test_what_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    reason: str,
) -> None:
    """Places and tokens that are none are one line and exit code 2."""
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("abc")
    Path("binary").write_bytes(b"\xff" * 40)

    assert 2 == main(["serve", "b", "--create", "--port", "0", *words])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert err.startswith(f"bkstore: {reason}")


@pytest.mark.parametrize("package", ["aiohttp", "prometheus_client"])
def test_missing_packages_are_told_first(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    package: str,
) -> None:
    """Without a package of the extra nothing is opened, and how to install it is told."""
    from bkstore.cli.terminal import needed_packages

    found = needed_packages.find_spec
    monkeypatch.setattr(
        needed_packages, "find_spec", lambda name: None if name == package else found(name)
    )
    target = tmp_path / "b"

    assert 2 == main(["serve", str(target), "--create", "--port", "0", "--http", "0"])
    assert f"serve --http needs {package}: pip install " in capsys.readouterr().err
    assert not target.exists()


def test_hosts_may_be_given() -> None:
    """A host may stand before the port, an IPv6 address in brackets."""
    from argparse import Namespace

    from bkstore.cli.serve_admin import admin_settings_from_args

    places = {
        "8080": ("127.0.0.1", 8080),
        "localhost:0": ("localhost", 0),
        "0.0.0.0:80": ("0.0.0.0", 80),
        "[::1]:8080": ("::1", 8080),
    }
    chosen = {}
    for text in places:
        settings = admin_settings_from_args(
            Namespace(http=text, http_token_file=None, http_name=None)
        )
        assert settings is not None
        chosen[text] = (settings.host, settings.port)

    assert places == chosen
