"""A server and a fork: the child has none, the parent's goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

SCRIPT = """
import os, signal, sys
from bkstore.errors import IllegalOperation
from bkstore.storage.bookie import Bookie
from bkstore.wire import v2
from bkstore.wire.server import BookieServer
from tests.wire.server.peer import Peer, add

with Bookie.open(sys.argv[1]) as bookie, BookieServer(bookie) as server:
    with Peer(server.address) as peer:
        peer.ask(add(7, 0))
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            assert server.wait(0), "it counts as ended"
            server.close()
            try:
                server.start()
            except IllegalOperation as error:
                assert "fork" in str(error), error
                sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert peer.ask(add(7, 1))[0].status.name == "EOK"
        assert peer.ask(v2.ReadRequest(7, 0))[0].status.name == "EOK"
print("well")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork(tmp_path: Path) -> None:
    """In a forked child the server counts as closed, and nothing hangs; the parent still serves,
    clients that were connected too."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "bookie")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )

    assert ("well\n", "") == (done.stdout, done.stderr)


LEFT_BEHIND = """
import os, sys
from bkstore.storage.bookie import Bookie
from bkstore.wire.server import BookieServer, ServerOptions
from tests.wire.server.peer import Peer, add

options = ServerOptions(stop_timeout=0)
with Bookie.open(sys.argv[1]) as bookie:
    server = BookieServer(bookie, options=options).start()
    with Peer(server.address) as peer:
        peer.ask(add(7, 0))
        childs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(childs[1])
            os.read(childs[0], 1)
            os._exit(0)
        for connection in list(server._server_state.connections):
            server._server_state.loop.call_soon_threadsafe(connection.abort)
        assert peer.ends(), "the child has the client's socket"
        server.close()
        try:
            Peer(server.address)
        except ConnectionRefusedError:
            print("refused")
        BookieServer(bookie, port=server.address.port).start().close()
        os.close(childs[1])
        os.waitpid(child, 0)
print("well")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_lives_on(tmp_path: Path) -> None:
    """It has none of the server's sockets: clients that the parent lets go see it, its port is
    free again, and nobody waits for answers of a server that is closed."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND, str(tmp_path / "bookie")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )

    assert ("refused\nwell\n", "") == (done.stdout, done.stderr)
