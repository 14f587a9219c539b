"""What real processes did to a cluster, done by our store: the same tree after every step.

Values, versions, kinds and access lists of all nodes are compared, byte for byte; they have the
instance ids, tokens and times of the recording. What the recording's own program did by hand is
done by hand here too (`HANDS`), for the steps after it to begin from the same tree.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.formats import cookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.golden.zookeeper.real_clusters import (
    NAMES,
    documents,
    golden_tree,
    raw,
    tree_of,
)
from tests.golden.zookeeper.replay import Replay
from tests.worlds.zookeeper import expire

_tops = count()

Tree = Mapping[str, Any]
OTHER = "127.0.0.1:24598"
"""The bookie whose cookie and registration the recording's program changed."""


def _bytes(tree: Tree, path: str) -> bytes:
    return bytes.fromhex(tree[path]["data_hex"])


def _without_endpoints(replay: Replay, tree: Tree) -> None:
    # Without data, as our store writes none: real clients stop at them under other ids.
    for actor, bookie in (
        ("registrar", "readonly/192.0.2.8:3181"),
        ("dump", "192.0.2.9:3181"),
        ("dump", "192.0.2.11:3181"),
    ):
        replay.raw(actor).create(replay.path(f"/available/{bookie}"), b"", ephemeral=True)


def _one_gone(replay: Replay, tree: Tree) -> None:
    replay.close("dump")


def _instance_changed(replay: Replay, tree: Tree) -> None:
    replay.raw("dump").set(replay.path("/INSTANCEID"), _bytes(tree, f"{replay.root}/INSTANCEID"))


def _cookie_removed(replay: Replay, tree: Tree) -> None:
    _instance_changed(replay, tree)
    replay.store("admin").delete_cookie(OTHER)


def _registered_by_another(replay: Replay, tree: Tree) -> None:
    text = _bytes(tree, f"{replay.root}/cookies/{OTHER}")
    replay.store("admin").write_cookie(OTHER, cookie.decode(text))
    replay.raw("dump").create(replay.path(f"/available/{OTHER}"), b"", ephemeral=True)


def _back_again(replay: Replay, tree: Tree) -> None:
    path = f"{replay.root}/available/127.0.0.1:24595"
    replay.register("bookie1", "127.0.0.1:24595", _bytes(tree, path))
    # A switch of upstream's HTTP endpoint, which bkstore has not.
    replay.raw("admin").create(replay.path("/disableHealthCheck"))


HANDS: Mapping[str, Callable[[Replay, Tree], object]] = {
    "service-info": _without_endpoints,
    "service-info-bad": _one_gone,
    "client-up": lambda replay, tree: replay.close("registrar"),
    "idgen-long": lambda replay, tree: replay.raw("dump").create(replay.path("/idgen-long")),
    "session-expired": lambda replay, tree: expire(replay.store("bookie3")),
    "health-check-off": _back_again,
    "wrong-instance": _instance_changed,
    "cookie-missing": _cookie_removed,
    "registered-by-another": _registered_by_another,
}
"""What was done without a recorded request, by step."""

FORMATS = ("initnewcluster", "metaformat")
EMPTIES = "reformat"


@pytest.mark.parametrize("name", NAMES)
def test_same_tree(
    name: str, golden: Path, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step through our store leaves the nodes that the real classes left, to the last one."""
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    document = documents(golden)[name]
    top, root, compared = f"/replay-{next(_tops)}", document["root"], 0
    replay = Replay(zookeeper, top, document)
    stages = document["stages"]
    made = [stage["stage"] in FORMATS for stage in stages].index(True)
    for stage in stages[made:]:
        step, tree = stage["stage"], stage["tree"]
        if step in (*FORMATS, EMPTIES):
            instance = _bytes(tree, f"{root}/INSTANCEID").decode()
            force = step == EMPTIES
            ZooKeeperStore.format(replay.uri, instance_id=instance, force=force).close()
        HANDS.get(step, lambda *_: None)(replay, tree)
        replay.stage(stage, sessions_only=step == EMPTIES)
        expected, found = golden_tree(tree), tree_of(raw(replay.store("looking")), top)

        assert sorted(expected) == sorted(found), step
        assert expected == found, step
        compared += 1
    for actor in list(replay.stores):
        replay.close(actor)

    assert len(stages) - made == compared > 12
