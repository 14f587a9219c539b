"""`is_ready`, `state`, `state/readonly`, `sanity`: what probes ask. Bodies are upstream's."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

from bkstore import Bookie
from bkstore.cluster import ZooKeeperStore
from bkstore.errors import WriteFailed
from bkstore.network import Client, DiskOptions, RegisteredBookie
from bkstore.network.sanity_test import check_sanity
from bkstore.testing.faults import FaultPlan
from bkstore.wire.admin import AdminServer
from bkstore.wire.admin.operator_endpoints import health
from bkstore.wire.sasl import SaslUsers
from bkstore.wire.server import BookieServer
from tests.wire.admin.asking import TOKEN, Reply, ask, fill, write

READY, STATE = "/api/v1/bookie/is_ready", "/api/v1/bookie/state"
DISKS = "/api/v1/bookie/list_bookie_info"
READ_ONLY, SANITY = "/api/v1/bookie/state/readonly", "/api/v1/bookie/sanity"


def body(reply: Reply) -> tuple[int, bytes]:
    """Return status and body."""
    return reply.status, reply.body


def test_ready_while_it_serves(bookie: Bookie, admin: AdminServer) -> None:
    """A bookie is ready between its start and its stop; a closed one is not."""
    admin.controls.stage = "starting"
    starting, state = ask(admin, READY), ask(admin, STATE)
    admin.controls.stage = "running"

    assert (503, "the bookie is starting") == (starting.status, starting.line)
    assert (False, False) == (state.json["running"], state.json["shuttingDown"])
    assert (200, b"OK") == body(ask(admin, READY))
    admin.controls.stage = "stopping"
    assert (503, "the bookie is stopping") == (ask(admin, READY).status, ask(admin, READY).line)
    assert (True, True) == tuple(
        ask(admin, STATE).json[name] for name in ("running", "shuttingDown")
    )
    admin.controls.stage = "running"
    bookie.close()
    assert (503, "the bookie is closed") == (ask(admin, READY).status, ask(admin, READY).line)


def test_bytes_of_the_state(admin: AdminServer) -> None:
    """The state is written as upstream's library writes it."""
    assert (
        b'{\n  "running" : true,\n  "readOnly" : false,\n  "shuttingDown" : false,\n'
        b'  "availableForHighPriorityWrites" : true\n}'
    ) == ask(admin, STATE).body


# -- read-only mode


def test_read_only_by_order(store: ZooKeeperStore, tmp_path: Path) -> None:
    """A bookie that is made read-only is registered so and takes no writes but recoveries', until
    it is made writable again: room on its disks does not do that."""
    with (
        RegisteredBookie.open(store, tmp_path / "b1", bookie_id="b1") as served,
        AdminServer(served.bookie, token=TOKEN, metadata=store) as admin,
    ):
        admin.controls.read_only = lambda: served.read_only
        admin.controls.set_read_only = served.set_read_only

        assert (200, b'{\n  "readOnly" : false\n}') == body(ask(admin, READ_ONLY))
        changed = write(admin, READ_ONLY, "PUT", {"readOnly": True})
        assert (200, b'{\n  "readOnly" : true\n}') == body(changed)
        served.check_disks()
        assert (True, True) == (ask(admin, READ_ONLY).json["readOnly"], served.read_only)
        assert (frozenset(), frozenset({"b1"})) == (
            store.writable_bookies(),
            store.read_only_bookies(),
        )
        assert (True, True) == tuple(
            ask(admin, STATE).json[name] for name in ("readOnly", "availableForHighPriorityWrites")
        )
        assert 200 == ask(admin, READY).status  # it can be read
        assert (200, b'{\n  "readOnly" : false\n}') == body(write(admin, READ_ONLY, "PUT", {}))
        assert frozenset({"b1"}) == store.writable_bookies()


def test_a_full_disk_outlasts_the_order(store: ZooKeeperStore, tmp_path: Path) -> None:
    """A bookie whose disks are full stays read-only, also when it is to be writable."""
    limits = DiskOptions(interval=3600)
    with (
        RegisteredBookie.open(
            store,
            tmp_path / "b1",
            bookie_id="b1",
            get_used_share=lambda _: 1.0,
            disk_options=limits,
        ) as served,
        AdminServer(served.bookie, token=TOKEN, metadata=store) as admin,
    ):
        admin.controls.read_only = lambda: served.read_only
        admin.controls.set_read_only = served.set_read_only
        replies = [write(admin, READ_ONLY, "PUT", {"readOnly": value}) for value in (True, False)]

    assert [(200, {"readOnly": True})] * 2 == [(each.status, each.json) for each in replies]


@pytest.mark.parametrize("given", [None, {"readOnly": 1}, {"readOnly": "true"}, [True]], ids=repr)
def test_odd_orders_change_nothing(admin: AdminServer, given: object) -> None:
    """A body that says neither is 400; upstream takes texts, and fails without a body."""
    orders: list[bool] = []
    admin.controls.set_read_only = orders.append

    assert (400, []) == (write(admin, READ_ONLY, "PUT", given).status, orders)


def test_orders_need_the_token_and_a_server(admin: AdminServer) -> None:
    """Without the token it is 401; where no server is known that would obey it is 503."""
    orders: list[bool] = []
    refused = write(admin, READ_ONLY, "PUT", {"readOnly": True})
    admin.controls.set_read_only = orders.append

    assert (503, "there is no bookie server") == (refused.status, refused.line[:25])
    assert (401, []) == (ask(admin, READ_ONLY, "PUT", b'{"readOnly": true}').status, orders)


# -- sanity


def test_a_bookie_that_works(store: ZooKeeperStore, tmp_path: Path) -> None:
    """The test writes a ledger on this bookie, and leaves none in the cluster."""
    with (
        RegisteredBookie.open(store, tmp_path / "b1", bookie_id="b1", host="127.0.0.1") as served,
        RegisteredBookie.open(store, tmp_path / "b2", bookie_id="b2"),
        AdminServer(served.bookie, metadata=store) as admin,
    ):
        admin.controls.check_sanity = lambda: check_sanity(store, served.server)
        reply = ask(admin, SANITY)

        assert (200, b'{\n  "passed" : true,\n  "readOnly" : false\n}') == body(reply)
        assert health.REASON_HEADER.lower() not in reply.headers
        assert ([], [10]) == (
            store.ledgers(),
            [len(served.bookie.availability(ledger)) for ledger in served.bookie.ledgers()],
        )


def test_a_bookie_that_asks_who_comes(store: ZooKeeperStore, tmp_path: Path) -> None:
    """The test, and the question for disk space, come as a user that bookies with SASL let in."""
    users = SaslUsers({"guest": "1", "bookkeeper-1": "2"})
    asking = {"sasl": users}
    with (
        RegisteredBookie.open(store, tmp_path / "b1", bookie_id="b1", server=asking) as served,
        AdminServer(served.bookie, metadata=store) as admin,
    ):
        admin.controls.check_sanity = lambda: check_sanity(
            store, served.server, sasl=admin.controls.sasl, timeout=0.5
        )
        refused = ask(admin, SANITY).json["passed"], ask(admin, DISKS).status
        admin.controls.sasl = users.first_allowed_user()
        passed = ask(admin, SANITY).json["passed"], ask(admin, DISKS).status

    assert "bookkeeper-1" == users.first_allowed_user().username
    assert ((False, 404), (True, 200)) == (refused, passed)


def test_a_bookie_that_does_not(store: ZooKeeperStore, tmp_path: Path) -> None:
    """A test that fails says so, and a header why; no ledger is left in the cluster."""
    plan = FaultPlan()
    with (
        Bookie.open(tmp_path / "b", "sorted", bookie_id="b1", files=plan) as bookie,
        BookieServer(bookie) as server,
        AdminServer(bookie, metadata=store) as admin,
    ):
        admin.controls.check_sanity = lambda: check_sanity(store, server)
        plan.fail_write()
        reply = ask(admin, SANITY)

    assert (200, b'{\n  "passed" : false,\n  "readOnly" : false\n}') == body(reply)
    assert reply.headers[health.REASON_HEADER.lower()]
    assert [] == store.ledgers()


def test_a_read_only_bookie_is_not_tested(admin: AdminServer, bookie: Bookie) -> None:
    """What takes no writes cannot pass, and nothing is written."""
    tests: list[None] = []
    admin.controls.check_sanity = lambda: tests.append(None)
    admin.controls.read_only = lambda: True

    assert (200, b'{\n  "passed" : false,\n  "readOnly" : true\n}') == body(ask(admin, SANITY))
    assert [] == tests


def test_one_test_at_a_time(admin: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second test waits for the first, and is 500 if that takes too long, as upstream."""
    monkeypatch.setattr(health, "_SANITY_WAIT_SECONDS", 0.01)
    begun, go_on = Event(), Event()

    def test() -> None:
        begun.set()
        assert go_on.wait(30)

    admin.controls.check_sanity = test
    first: list[Reply] = []
    thread = Thread(target=lambda: first.append(ask(admin, SANITY)))
    thread.start()
    assert begun.wait(30)
    second = ask(admin, SANITY)
    go_on.set()
    thread.join(30)

    assert [500, True] == [second.status, first[0].json["passed"]]


def test_no_test_without_a_cluster(bookie: Bookie) -> None:
    """Nothing tested is not passed."""
    with AdminServer(bookie) as admin:
        reply = ask(admin, SANITY)

    assert (503, True) == (reply.status, "in no cluster" in reply.line)


def test_sanity_after_a_failed_sync(tmp_path: Path) -> None:
    """A bookie whose sync has failed takes no writes, those of recoveries neither."""
    plan = FaultPlan()
    with Bookie.open(tmp_path, "sorted", files=plan) as bookie, AdminServer(bookie) as admin:
        plan.fail_sync()
        with pytest.raises(WriteFailed):
            fill(bookie, 7, range(3))

        assert {"readOnly": True} == ask(admin, READ_ONLY).json
        assert (True, False) == tuple(
            ask(admin, STATE).json[name] for name in ("readOnly", "availableForHighPriorityWrites")
        )


def test_clients_choose_others(store: ZooKeeperStore, tmp_path: Path) -> None:
    """New ledgers do not go to a bookie that was made read-only."""
    with (
        RegisteredBookie.open(store, tmp_path / "b1", bookie_id="b1") as first,
        RegisteredBookie.open(store, tmp_path / "b2", bookie_id="b2"),
        Client(store) as client,
    ):
        first.set_read_only(True)
        ensembles = [client.create_ledger(1, 1, 1).metadata.segments[0][1] for _ in range(8)]

    assert [("b2",)] * 8 == ensembles
