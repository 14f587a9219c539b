"""Connections that break in the middle of a request: it is done once, or said not to be known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.errors import (
    BadVersion,
    IllegalOperation,
    LedgerExists,
    MetadataUnavailable,
    NoSuchLedger,
    UnauthorizedAccess,
)
from bkstore.formats.cookie import Cookie
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import metadata_of, new_uri, said
from tests.worlds.zookeeper import (
    CREATE,
    DELETE,
    GET,
    SET,
    Proxy,
    end_session,
    expire,
    raw_client,
    root_of,
)

Lose = Callable[[int], None]


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[Proxy]:
    """Yield a port that leads to the server."""
    made = Proxy(zookeeper.port)
    yield made
    made.close()


@pytest.fixture
def uri(zookeeper: ZooKeeperServer) -> str:
    """Return a new cluster's service URI, past the proxy."""
    found = new_uri(zookeeper)
    ZooKeeperStore.format(found).close()
    return found


@pytest.fixture
def store(proxy: Proxy, uri: str) -> Iterator[ZooKeeperStore]:
    """Yield a store on the new cluster, through the proxy."""
    root = uri.partition("://")[2].partition("/")[2]
    with ZooKeeperStore(f"zk://127.0.0.1:{proxy.port}/{root}", session_timeout=3) as opened:
        yield opened


@pytest.fixture
def other(uri: str) -> Iterator[ZooKeeperStore]:
    """Yield a second client of the same cluster, whose connection holds."""
    with ZooKeeperStore(uri) as opened:
        yield opened


@pytest.fixture(params=["answer", "request"])
def lose(request: pytest.FixtureRequest, proxy: Proxy) -> Iterator[Lose]:
    """Yield what arms the proxy: an answer is lost, or a request; see that it was."""
    yield proxy.lose_answer if request.param == "answer" else proxy.lose_request

    assert proxy.lost > 0


def test_ledger(store: ZooKeeperStore, other: ZooKeeperStore, lose: Lose) -> None:
    """Create, write and delete are done exactly once, and their versions are right."""
    store.create(metadata_of(1))
    lose(CREATE)

    assert 0 == store.create(metadata_of(7))
    lose(SET)
    assert 1 == store.write(metadata_of(7, state="IN_RECOVERY"), 0)
    lose(GET)
    assert (metadata_of(7, state="IN_RECOVERY"), 1) == said(store.read(7))
    lose(DELETE)
    store.delete(7, 1)
    assert [LedgerId.of(1)] == other.ledgers()


def test_ledger_that_another_made(store: ZooKeeperStore, other: ZooKeeperStore, lose: Lose) -> None:
    """After a broken connection what another did is not taken for one's own."""
    other.create(metadata_of(7))
    lose(CREATE)
    with pytest.raises(LedgerExists):
        store.create(metadata_of(7))
    other.write(metadata_of(7, ack_quorum_size=2), 0)
    lose(SET)
    with pytest.raises(BadVersion):
        store.write(metadata_of(7), 0)
    lose(DELETE)
    with pytest.raises(BadVersion):
        store.delete(7, 0)

    assert (metadata_of(7, ack_quorum_size=2), 1) == said(other.read(7))


def test_old_formats(store: ZooKeeperStore, proxy: Proxy) -> None:
    """Metadata without a token cannot tell whose they are: it is LedgerExists, as upstream."""
    store.create(metadata_of(1))  # its folder is the other's too
    proxy.lose_answer(CREATE)
    with pytest.raises(LedgerExists):
        store.create(metadata_of(7, version=2))

    assert 0 == store.read(7).version


def test_ids(store: ZooKeeperStore, other: ZooKeeperStore, lose: Lose) -> None:
    """An id is given once, though its request was sent twice."""
    given = [other.next_id(), store.next_id(3)]
    lose(CREATE)
    given.append(store.next_id())
    lose(CREATE)
    given += [store.next_id(3), other.next_id(), other.next_id(3)]

    assert len(set(given)) == len(given)


def test_marks_and_locks(store: ZooKeeperStore, other: ZooKeeperStore, lose: Lose) -> None:
    """A mark, a lock and their end are done once; a lock that is one's own is known as such."""
    marks = store.underreplication
    marks.create_layout()
    lose(CREATE)
    marks.mark(7, ["b1"], timed=False)
    lose(SET)

    assert marks.mark(7, ["b2"], timed=False)
    lose(CREATE)
    lock = marks.lock_any()
    assert lock is not None
    assert (LedgerId.of(7), 1) == lock[:2]
    assert other.underreplication.lock_any() is None
    assert {LedgerId.of(7): UnderreplicatedMark(None, ("b1", "b2"))} == other.underreplicated()
    lose(DELETE)
    assert marks.mark_replicated(lock)
    assert {} == other.underreplicated()
    assert other.underreplication.lock(7) is not None


def test_cookies(store: ZooKeeperStore, other: ZooKeeperStore, lose: Lose) -> None:
    """A cookie that was written by the first try is this bookie's own."""
    made = Cookie(5, "b1:3181", ("/j",), ("/l",), None, store.instance_id())
    lose(CREATE)

    assert 0 == store.write_cookie("b1:3181", made)
    lose(SET)
    assert 1 == store.write_cookie("b1:3181", replace(made, ledger_dirs=("/l", "/m")), 0)
    lose(DELETE)
    assert store.delete_cookie("b1:3181", 1)
    assert not other.delete_cookie("b1:3181")


def test_registration(store: ZooKeeperStore, other: ZooKeeperStore, lose: Lose) -> None:
    """A bookie registers, becomes read only and leaves, whatever is lost on the way."""
    lose(CREATE)
    registration = store.register("b1", ServiceInfo.at("127.0.0.1", 3181))

    assert frozenset({"b1"}) == other.writable_bookies()
    lose(DELETE)
    registration.set_read_only(True)
    assert (frozenset(), {"b1"}) == (other.writable_bookies(), other.read_only_bookies())
    lose(DELETE)
    registration.close()
    assert frozenset() == other.registered_bookies()


def test_a_registration_that_is_forbidden_for_a_while(
    store: ZooKeeperStore, other: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever keeps a bookie from being registered as it should be, it is tried again."""
    registration = store.register("b1", ServiceInfo.at("127.0.0.1", 3181))

    def forbids() -> bool:
        raise UnauthorizedAccess("an access list")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(registration, "_try_register", forbids)
        with pytest.raises(UnauthorizedAccess):
            registration.set_read_only(True)
        assert isinstance(registration.problem, UnauthorizedAccess)
    until = time.monotonic() + 20
    while registration.problem is not None and time.monotonic() < until:
        time.sleep(0.02)

    assert (frozenset(), {"b1"}) == (other.writable_bookies(), other.read_only_bookies())


def test_expiry_in_the_middle(store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy) -> None:
    """A change whose answer was lost with the session is still told from another's."""
    proxy.lose_answer(CREATE)
    expire(store)

    assert 0 == store.create(metadata_of(7))
    assert [LedgerId.of(7)] == other.ledgers()


def test_no_answer(proxy: Proxy, uri: str) -> None:
    """Without an answer in time nothing is claimed: neither done nor not done."""
    root = uri.partition("://")[2].partition("/")[2]
    with ZooKeeperStore(f"zk://127.0.0.1:{proxy.port}/{root}", timeout=0.6) as store:
        store.create(metadata_of(1))
        proxy.close()
        proxy.lose_request(CREATE)
        with pytest.raises(MetadataUnavailable, match=r"within 0.6 s; it may have been executed"):
            store.create(metadata_of(7))
        with pytest.raises(MetadataUnavailable, match=r"gave no answer within 0.6 s$"):
            store.read(1)
    with pytest.raises(IllegalOperation, match="is closed"):
        store.read(1)


def test_nobody_listens() -> None:
    """Where nobody answers one line says so, with the address."""
    proxy = Proxy(1)
    proxy.close()
    with pytest.raises(
        MetadataUnavailable, match=f"at 127.0.0.1:{proxy.port} answered within 0.3 s"
    ):
        ZooKeeperStore(f"zk://127.0.0.1:{proxy.port}/ledgers", timeout=0.3)


def test_delete_of_another(store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy) -> None:
    """A deletion that comes second says that there is no ledger; one that was lost does not."""
    store.create(metadata_of(7))
    other.delete(7)
    with pytest.raises(NoSuchLedger):
        store.delete(7)
    store.create(metadata_of(7))
    proxy.lose_answer(DELETE)
    store.delete(7)

    assert [] == other.ledgers()


def test_session_that_ends_as_a_bookie_registers(
    store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy, zookeeper: ZooKeeperServer
) -> None:
    """A node that was made, and went with its session before `register` returned, comes again."""
    client = raw_client(store)
    proxy.break_at(3, answer=True, then=lambda: end_session(client, zookeeper.port))
    store.register("b1", ServiceInfo.at("127.0.0.1", 3181))
    until = time.monotonic() + 20
    while "b1" not in other.registered_bookies():
        assert time.monotonic() < until
        time.sleep(0.02)

    assert 1 == proxy.lost


def test_vote_that_is_gone(store: ZooKeeperStore, other: ZooKeeperStore) -> None:
    """A vote that went with its session wins nothing, and says so."""
    vote = store.underreplication.vote("b1")
    expire(store)
    late = other.underreplication.vote("b2")

    assert other.underreplication.elected(late)
    with pytest.raises(IllegalOperation, match="the vote has disappeared"):
        store.underreplication.elected(vote)


def test_vote_that_is_sent_twice(
    store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    """Who votes has one vote, whatever was lost, and is elected by it."""
    marks = store.underreplication
    marks.withdraw(marks.vote("b1"))
    proxy.break_at(2, answer=True)  # behind that of the folder
    vote = marks.vote("b1")
    votes = raw_client(other).get_children(f"{root_of(other)}/underreplication/auditorelection")

    assert 1 == proxy.lost
    assert [vote.path.rpartition("/")[2]] == votes
    assert marks.elected(vote)


@pytest.mark.parametrize("answer", [False, True], ids=["request", "answer"])
def test_new_cluster(proxy: Proxy, uri: str, answer: bool) -> None:
    """A cluster is made once, with the instance id that was asked for."""
    root = uri.partition("://")[2].partition("/")[2]
    proxy.break_at(2, answer=answer)  # behind the look whether the folder above is there
    made = f"zk+flat://127.0.0.1:{proxy.port}/{root}/below"
    with ZooKeeperStore.format(made, instance_id="one") as store:
        assert ("one", 1) == (store.instance_id(), proxy.lost)
    with pytest.raises(IllegalOperation, match="already exists"):
        ZooKeeperStore.format(made, instance_id="one")
