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
