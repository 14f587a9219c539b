"""`bkstore serve`: where it listens, what it makes, how it stops, and what it refuses."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.formats.entry import Entry, encode
from bkstore.storage.bookie import Bookie
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.status_codes import Status
from tests.wire.serve_process import served
from tests.wire.server.peer import AUTHORITY, KEY, SERVER, Peer, add, record, secured


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_a_new_bookie(tmp_path: Path, number: int) -> None:
    """A new bookie of the storage asked for; an interrupt or SIGTERM stops it in order, with
    everything flushed and exit code 0."""
    folder = str(tmp_path / "new")
    with served(folder, "--create", "--storage", "db") as (process, address, line):
        assert f"bkstore: serving {folder} (db storage) on 127.0.0.1:{address[1]}\n" == line
        with Peer(address) as peer:
            assert peer.ask(add(7, 0))[0].status is Status.EOK
            peer.send(*(frame(*add(7, entry).parts()) for entry in range(1, 200)))
            peer.exactly(28)
            process.send_signal(number)
            answered = 1 + len(peer.exactly(28 * 198)) // 28
        out, err = process.communicate(timeout=30)

        stopping = "bkstore: stopping (a second signal ends it at once)\n"

        assert (0, "", stopping) == (process.returncode, out, err)
    with Bookie.open(folder) as bookie:
        assert (False, "db") == (bookie.unclean, bookie.storage.storage)
        assert answered < bookie.entries(7).size
        assert bookie.read_entry(7, answered) == record(7, answered)


def test_a_read_that_waits_is_answered_at_the_end(tmp_path: Path) -> None:
    """SIGTERM comes while the command waits for its server: that still answers what it took in,
    a read that waits for a LAC as if its time was over."""
    with served(str(tmp_path / "new"), "--create") as (process, address, _), Peer(address) as peer:
        body = {"ledgerId": 7, "entryId": 0, "body": record(7, 0), "masterKey": KEY}
        peer.ask_v3(v3.OperationType.ADD_ENTRY, body)
        waits = {"ledgerId": 7, "entryId": -1, "previousLAC": 5, "timeOut": 60_000}
        peer.send(frame(v3.encode(v3.new_request(v3.OperationType.READ_ENTRY, 8, waits))))
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        answer = v3.decode_response(peer.frame()[4:])

        assert (8, Status.EOK) == (answer.header.txnId, v3.status_in(answer))
        assert process.wait(30) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, number: int) -> None:
    """While a client that takes no answers holds the stop up, another signal ends the process as
    a kill does; the next start has what was acknowledged."""
    folder = str(tmp_path / "new")
    with served(folder, "--create") as (process, address, _), Peer(address) as peer:
        large = encode(Entry(7, 0, -1, 1 << 20, bytes(1 << 20)), "CRC32C")
        peer.ask(v2.AddRequest(KEY, large))
        peer.send(*(frame(*v2.ReadRequest(7, 0).parts()) for _ in range(40)))
        peer.exactly(1000)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert "bkstore: stopping (a second signal ends it at once)\n" == process.stderr.readline()
        time.sleep(0.2)

        assert process.poll() is None

        process.send_signal(number)

        assert -number == process.wait(5)
    with Bookie.open(folder) as bookie:
        assert (True, large) == (bookie.unclean, bookie.read_entry(7, 0))


def test_every_address(tmp_path: Path) -> None:
    """Who listens at all addresses is told what that means."""
    folder = str(tmp_path / "new")
    with served(folder, "--create", "--host", "0.0.0.0") as (process, _address, line):
        assert "(sorted storage) on 0.0.0.0:" in line
        assert process.stderr is not None
        expected = "0.0.0.0 means all addresses of this machine: anyone who reaches one can read"

        assert f"bkstore: {expected} and write\n" == process.stderr.readline()


def test_serving_what_is_there(tmp_path: Path) -> None:
    """A directory is served with its own storage; journals that grew are cut by checkpoints."""
    with Bookie.open(tmp_path / "old", "interleaved") as bookie:
        bookie.add_entry(encode(Entry(7, 0, -1, 2, b"hi"), "CRC32C"), KEY)
    options = "--checkpoint-interval", "0.1", "--storage", "interleaved"
    with served(str(tmp_path / "old"), *options) as (_, address, line):
        assert "(interleaved storage)" in line
        with Peer(address) as peer:
            assert peer.ask(v2.ReadRequest(7, 0))[0].record.endswith(b"hi")
            mark = tmp_path / "old" / "ledgers" / "current" / "lastMark"
            before = mark.read_bytes()
            peer.ask(add(7, 1))
            deadline = time.monotonic() + 20
            while mark.read_bytes() == before and time.monotonic() < deadline:
                time.sleep(0.02)

            assert mark.read_bytes() != before


def test_serving_with_tls_and_extended(tmp_path: Path) -> None:
    """The options for certificates and for scopes reach the server."""
    certificate, key = map(str, SERVER)
    options = "--tls-certificate", certificate, "--tls-key", key, "--extended"
    with (
        served(str(tmp_path / "new"), "--create", *options) as (_, address, _line),
        Peer(address) as peer,
    ):
        body = {"ledgerId": 7, "startEntryId": 0, "maxCount": 1, "maxSize": 1}
        answer = secured(peer).ask_v3(v3.OperationType.BATCH_READ_ENTRY, body, extended=True)

        assert v3.status_in(answer) is Status.ENOLEDGER


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No bookie is made unasked or among other files, and no other storage is made of one."""
    full, other = tmp_path / "full", tmp_path / "other"
    full.mkdir()
    (full / "thesis.txt").write_text("do not touch")
    Bookie.open(other, "db").close()
    told = []
    for words in (
        [str(tmp_path / "none")],
        [str(full)],
        [str(full), "--create"],
        [str(other), "--storage", "sorted"],
        [str(tmp_path / "none"), "--create", "--port", "99999"],
        [str(other), "--host", "a..b"],
        [str(other), "--checkpoint-interval", "0"],
        [str(other), "--tls-key", "key.pem"],
        [str(other), "--tls-certificate", str(tmp_path / "none.pem")],
        [str(other), "--tls-certificate", str(AUTHORITY)],
    ):
        assert main(["serve", *words]) == 2
        out, err = capsys.readouterr()
        told.append(err.replace(str(tmp_path), "TMP").replace(str(AUTHORITY), "CA"))

        assert (out, 1) == ("", err.count("\n"))
    assert [
        "bkstore: TMP/none: not a bookie's directory; --create makes a new one\n",
        "bkstore: TMP/full: not a bookie's directory; --create makes a new one\n",
        "bkstore: TMP/full: is not empty and not a bookie's directory\n",
        "bkstore: TMP/other/ledgers/current: the index here is rocksdb, not of sorted storage\n",
        "bkstore: --port must be a whole number, 0 to 65535, not 99999\n",
        "bkstore: host must be a host name or address, not 'a..b'\n",
        "bkstore: --checkpoint-interval must be a number above 0 up to 2592000, not 0.0\n",
        "bkstore: --tls-key and --tls-client-ca need --tls-certificate\n",
        "bkstore: TMP/none.pem: No such file or directory\n",
    ] == told[:-1]
    assert told[-1].startswith("bkstore: CA: not a certificate and its key: ")
    assert ["thesis.txt"] == [path.name for path in full.iterdir()]
    assert not (tmp_path / "none").exists()


def test_an_address_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that another has is named, and the bookie is closed again."""
    with served(str(tmp_path / "one"), "--create") as (_, address, _line):
        port = str(address[1])

        assert main(["serve", str(tmp_path / "two"), "--create", "--port", port]) == 2
    assert f"bkstore: 127.0.0.1:{port}: Address already in use\n" == capsys.readouterr().err
    Bookie.open(tmp_path / "two").close()
