"""`autorecovery/*`: what is written is what auditors and workers read. Bodies are upstream's."""

from __future__ import annotations

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.formats.cookie import Cookie
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import Segment
from bkstore.wire.admin import AdminServer
from bkstore.wire.admin.operator_endpoints.decommissions import Decommissions
from tests.cluster.store.samples import metadata_of
from tests.wire.admin.asking import ask, until, write
from tests.worlds.zookeeper import raw_client

TOP = "/api/v1/autorecovery"
STATUS, MARKED = f"{TOP}/status", f"{TOP}/list_under_replicated_ledger"
AUDITOR, AUDIT = f"{TOP}/who_is_auditor", f"{TOP}/trigger_audit"
DELAY, DECOMMISSION = f"{TOP}/lost_bookie_recovery_delay", f"{TOP}/decommission"


def test_workers_may_copy_or_not(admin: AdminServer, store: ZooKeeperStore) -> None:
    """The status is that of the cluster; setting it twice is no error."""
    on, off = b'{\n  "enabled" : true\n}', b'{\n  "enabled" : false\n}'

    assert (200, on) == ask(admin, STATUS)[::2]
    for word, shown in (("false", off), ("false", off), ("true", on), ("true", on)):
        assert (200, shown) == write(admin, STATUS, "PUT", enabled=word)[::2]
        assert (shown == on) == store.underreplication.enabled
    assert [400, 400] == [
        write(admin, STATUS, "PUT").status,
        write(admin, STATUS, "PUT", enabled="yes").status,
    ]
    assert 401 == ask(admin, STATUS, "PUT", enabled="false").status
    assert store.underreplication.enabled


def test_marked_ledgers(admin: AdminServer, store: ZooKeeperStore) -> None:
    """Ids, or ids with the bookies that lack entries; of marks that name a bookie, or do not."""
    assert 404 == ask(admin, MARKED).status
    store.mark_underreplicated(7, UnderreplicatedMark(None, ("b1:3181", "b2:3181")))
    store.mark_underreplicated(1234567890123, UnderreplicatedMark(None, ("b2:3181",)))
    store.mark_underreplicated(LedgerId(5, 9), UnderreplicatedMark(None, ("b1:3181",)))

    assert (200, b"[ 7, 1234567890123 ]") == ask(admin, MARKED)[::2]
    assert (
        b'{\n  "7" : [ "b1:3181", "b2:3181" ],\n  "1234567890123" : [ "b2:3181" ]\n}'
        == ask(admin, MARKED, printmissingreplica="false").body
    )
    asked = [
        ({"missingreplica": "b1:3181"}, [7]),
        ({"excludingmissingreplica": "b1:3181"}, [1234567890123]),
        ({"missingreplica": "b2:3181", "excludingmissingreplica": "b1:3181"}, [1234567890123]),
        ({"missingreplica": " "}, [7, 1234567890123]),
        ({"ledger_scope_id": 5}, [9]),
    ]
    for parameters, ledgers in asked:
        assert ledgers == ask(admin, MARKED, **parameters).json, parameters  # type: ignore[arg-type]
    assert 404 == ask(admin, MARKED, missingreplica="b3:3181").status


def test_the_auditor_is_seen(admin: AdminServer, store: ZooKeeperStore) -> None:
    """It is the oldest vote's bookie; without one it is 404."""
    assert 404 == ask(admin, AUDITOR).status
    store.underreplication.vote("b1:3181")

    assert (200, b"Auditor: b1:3181") == ask(admin, AUDITOR)[::2]


def test_the_delay(admin: AdminServer, store: ZooKeeperStore) -> None:
    """It is the cluster's; 404 where it was never set, and where a body says none."""
    assert 404 == ask(admin, DELAY).status
    assert 401 == ask(admin, DELAY, "PUT", b'{"delay_seconds": 5}').status

    put = write(admin, DELAY, "PUT", {"delay_seconds": 17})
    assert (200, b"Success set lostBookieRecoveryDelay to 17") == put[::2]
    assert (200, b"lostBookieRecoveryDelay value: 17") == ask(admin, DELAY)[::2]
    odd = [None, {}, {"delay_seconds": "x"}, {"delay_seconds": -1}, {"delay_seconds": 2**31}]
    assert [404, 404, 400, 400, 400] == [write(admin, DELAY, "PUT", given).status for given in odd]
    assert 17 == store.underreplication.recovery_delay()


def test_an_audit_is_begun_by_writing_the_delay(admin: AdminServer, store: ZooKeeperStore) -> None:
    """The auditor watches the delay: it is written anew, as it is. Without an auditor, and where
    autorecovery is disabled, it is 404 and says so."""
    alone = write(admin, AUDIT, "PUT")
    store.underreplication.vote("b1")
    store.underreplication.set_recovery_delay(17)
    path = f"{store.uri.root}/underreplication/lostBookieRecoveryDelay"
    before = raw_client(store).get(path)
    audit = write(admin, AUDIT, "PUT")
    after = raw_client(store).get(path)
    store.underreplication.disable()
    disabled = write(admin, AUDIT, "PUT")

    assert (200, b"Success trigger audit.") == audit[::2]
    assert (b"17", before[1].version + 1) == (after[0], after[1].version)
    assert (404, 404) == (alone.status, disabled.status)
    assert ("no auditor is elected" in alone.line, "disabled" in disabled.line) == (True, True)


def test_copying_is_not_done_here(admin: AdminServer) -> None:
    """A recovery of a bookie is refused, and says who does it."""
    reply = write(admin, f"{TOP}/bookie", "PUT", {"bookie_src": ["b1"]})

    assert (404, True) == (reply.status, "replication worker" in reply.line)


# -- decommissions


def lost(store: ZooKeeperStore, bookie: str) -> None:
    """Make a cluster with an auditor, where a bookie with ledger 7 is gone, and marked."""
    store.underreplication.vote("other")
    store.write_cookie(bookie, Cookie(5, bookie, ("j",), ("l",), instance_id="a0b1"))
    store.create(metadata_of(7, segments=(Segment(0, ("other", bookie)),)))
    store.create(metadata_of(8, segments=(Segment(0, ("other", "third")),)))
    store.mark_underreplicated(7, UnderreplicatedMark(None, (bookie,)))


def test_a_cookie_goes_after_the_ledgers(
    admin: AdminServer, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decommission waits until neither metadata nor marks name the bookie."""
    looks = []
    left = Decommissions._wait_until_unused

    def waited(self: Decommissions, *arguments: object) -> bool:
        looks.append(store.cookies())
        return left(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Decommissions, "_wait_until_unused", waited)
    monkeypatch.setattr(admin._decommissions, "_pause_seconds", 0.01)
    lost(store, "b1")
    body = {"bookie_src": "b1", "delete_cookie": "true"}
    reply = write(admin, DECOMMISSION, "PUT", body)

    assert (200, b"Success send decommission Bookie command b1") == reply[::2]
    until(lambda: bool(looks))
    version = store.read(7).version
    store.write(metadata_of(7, segments=(Segment(0, ("other", "third")),)), version)
    assert frozenset({"b1"}) == store.cookies()  # the mark still names it
    store.clear_mark(7)
    until(lambda: store.cookies() == frozenset())


def test_a_cookie_stays_unless_it_is_to_go(admin: AdminServer, store: ZooKeeperStore) -> None:
    """Without `delete_cookie` the cookie stays; closing the admin ends the wait."""
    lost(store, "b1")
    for body in ({"bookie_src": "third"}, {"bookie_src": "b1", "delete_cookie": "true"}):
        assert 200 == write(admin, DECOMMISSION, "PUT", body).status
    admin.close()

    assert frozenset({"b1"}) == store.cookies()


def test_what_is_not_decommissioned(admin: AdminServer, store: ZooKeeperStore) -> None:
    """A bookie that is registered, bodies that name none, and a cluster without an auditor."""
    store.register("b1", ServiceInfo.at("h1", 3181))
    alone = write(admin, DECOMMISSION, "PUT", {"bookie_src": "gone"})
    store.underreplication.vote("b1")
    replies = [
        write(admin, DECOMMISSION, "PUT", body)
        for body in (
            *({"bookie_src": "b1"}, {}, None, {"bookie_src": "a b"}, {"bookie_src": 7}),
            {"bookie_src": "gone", "delete_cookie": "perhaps"},
        )
    ]

    assert (404, True) == (alone.status, "no auditor" in alone.line)
    assert [404, 404, 404, 404, 400, 400] == [reply.status for reply in replies]
    assert "stop it first" in replies[0].line
    assert 401 == ask(admin, DECOMMISSION, "PUT", b'{"bookie_src": "gone"}').status
