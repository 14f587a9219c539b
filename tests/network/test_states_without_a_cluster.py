"""Registered bookies, watches and audited bookies against stand-ins that are told what happens:
what comes first, what is tried again, and when."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bkstore.cli.audit_settings import audit_options_from_args
from bkstore.cli.main import make_parser
from bkstore.cluster.store.zookeeper.kazoo_client import NoNodeError
from bkstore.cluster.store.zookeeper.watches import BookieWatch, LedgerWatch
from bkstore.errors import (
    BookieUnavailable,
    MetadataUnavailable,
    ReadOnlyError,
    UnsupportedLayout,
    WriteFailed,
)
from bkstore.formats.cookie import Cookie
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.network import DiskOptions, RegisteredBookie, audited_bookies, registered_bookie
from bkstore.network.audited_bookies import AuditedBookie
from bkstore.network.cookie_check import validate_cookies
from bkstore.network.disk_watch import DiskWatch
from bkstore.network.registered_bookie import cluster_bookie
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories.directory_cookies import OwnedDirectories

pytest.importorskip("kazoo")

# -- a bookie's state and its registration


class _Registration:
    """Remembers what it was told, and whether the server took adds then."""

    def __init__(self) -> None:
        self.told: list[tuple[bool, bool]] = []
        self.server: Any = None
        self.fails = False
        self.problem = None

    def set_read_only(self, read_only: bool) -> None:
        """Remember; raise if that is asked for."""
        self.told.append((read_only, self.server.read_only))
        if self.fails:
            raise MetadataUnavailable("no server")

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def used() -> list[float]:
    """Return the used share of the disk, to be changed."""
    return [0.5]


@pytest.fixture
def bookie(tmp_path: Path, used: list[float]) -> Iterator[tuple[RegisteredBookie, _Registration]]:
    """Return a bookie that looks at its disk when it is told to, and its registration."""
    registration = _Registration()
    store: Any = SimpleNamespace(
        register=lambda *_, **__: registration, read=lambda _: None, ledgers=list
    )
    with Bookie.open(tmp_path, bookie_id="b1") as opened:
        server: Any = SimpleNamespace(
            bookie=opened, address=SimpleNamespace(host="127.0.0.1", port=1), read_only=False
        )
        registration.server = server
        limits = DiskOptions(full=0.95, writable_again=0.9, interval=3600)
        with RegisteredBookie(
            store, server, disk_options=limits, get_used_share=lambda _: used[0]
        ) as made:
            yield made, registration


def test_clients_hear_before_adds_are_refused(
    bookie: tuple[RegisteredBookie, _Registration], used: list[float]
) -> None:
    """A bookie takes adds as long as it is registered as writable: it is registered as read-only
    before it refuses the first, and takes them again before it is registered as writable."""
    made, registration = bookie
    for used[0] in (0.96, 0.97, 0.92, 0.89, 0.5):
        made.check_disks()

    assert [(True, False), (False, False)] == registration.told
    assert not made.read_only


def test_a_registration_that_fails_changes_no_state(
    bookie: tuple[RegisteredBookie, _Registration], used: list[float]
) -> None:
    """What the disks say holds, whether ZooKeeper can be told or not."""
    made, registration = bookie
    registration.fails = True
    used[0] = 0.96

    assert "full: 96.0% used" in str(made.check_disks())
    assert made.read_only
    used[0] = 0.9
    assert None is made.check_disks()
    assert not made.read_only


def test_limits_of_disks(bookie: tuple[RegisteredBookie, _Registration], used: list[float]) -> None:
    """`diskUsageThreshold` is the share above which a disk is full, `diskUsageLwmThreshold` the
    one up to which it has room again."""
    made, _ = bookie
    found = []
    for used[0] in (0.95, 0.951, 0.95, 0.901, 0.9, 0.95):
        made.check_disks()
        found.append(made.read_only)

    assert [False, True, True, True, False, False] == found


def _watched(
    *shares: float, failed: tuple[bool, ...] = (), refuses: str = "", any_full: bool = True
) -> DiskWatch:
    """Return the watch of a bookie with a ledger directory for each share of its disk in use."""

    def check_writable() -> None:
        if refuses:
            raise ReadOnlyError(refuses)

    places = [Path(str(at)) for at in range(len(shares))]
    full_disk = WriteFailed("j", OSError(errno.ENOSPC, "full"))
    bookie: Any = SimpleNamespace(
        storage=SimpleNamespace(write_paths=[SimpleNamespace(check_writable=check_writable)]),
        journals=[SimpleNamespace(failure=full_disk if each else None) for each in failed],
        directories=SimpleNamespace(ledger=places),
    )
    limits = DiskOptions(full=0.9, writable_again=0.8, any_full=any_full)
    return DiskWatch(bookie, limits, lambda path: shares[int(path.name)])


def test_what_makes_a_bookie_read_only() -> None:
    """A disk of its is full; or one of its journals failed; or its storage takes no writes."""
    assert None is _watched(0.9, 0.9).find_read_only_reason(False)
    assert ".: its disk is full: 99.0% used" == _watched(0.2, 0.99, 0.9).find_read_only_reason(
        False
    )
    assert "all disks of ledger directories are full: 91.0% used" == _watched(
        0.91, 0.95
    ).find_read_only_reason(False)
    assert None is _watched(0.8, 0.7).find_read_only_reason(True)
    assert None is not _watched(0.81, 0.7).find_read_only_reason(True)
    assert None is _watched(0.1, failed=(False, False)).find_read_only_reason(False)
    assert "writing a journal failed: j: cannot be written: full; restart the bookie" == _watched(
        0.1, failed=(False, True, False)
    ).find_read_only_reason(False)
    assert "no" == _watched(0.1, refuses="no").find_read_only_reason(True)


def test_a_bookie_that_needs_one_disk_only() -> None:
    """Without `any_full` it takes writes until all of its disks are full."""
    assert None is _watched(0.99, 0.9, any_full=False).find_read_only_reason(False)
    assert None is _watched(0.8, 0.99, any_full=False).find_read_only_reason(True)
    assert None is not _watched(0.81, 0.99, any_full=False).find_read_only_reason(True)
    assert None is not _watched(0.91, 0.95, any_full=False).find_read_only_reason(False)


class _Cookies:
    """A cluster's cookies."""

    def __init__(self) -> None:
        self.known: Any = None
        self.written: list[Any] = []

    def instance_id(self) -> str:
        """Return the cluster's."""
        return "one"

    def cookie(self, _: str) -> Any:
        """Return what the cluster has."""
        return self.known

    def write_cookie(self, bookie: str, cookie: Cookie) -> None:
        """Remember."""
        self.written.append((bookie, cookie))
        self.known = SimpleNamespace(cookie=cookie)


def _place(top: Path) -> OwnedDirectories:
    return OwnedDirectories.of_dirs([top / "l"], [top / "j"], [top / "i"])


def test_cookies_of_a_start(tmp_path: Path) -> None:
    """A new bookie gets a cookie on its disks and in the cluster; a later start has both; with
    one of them alone, or one that differs in anything, it does not start."""
    cluster: Any = _Cookies()

    assert "one" == validate_cookies(cluster, _place(tmp_path), "b1")
    ((bookie, written),) = cluster.written
    assert "b1" == bookie == written.bookie_id
    assert "one" == validate_cookies(cluster, _place(tmp_path), "b1")
    for field in ("journal_dirs", "ledger_dirs", "index_dirs"):
        cluster.known = SimpleNamespace(cookie=replace(written, **{field: ("/elsewhere",)}))
        with pytest.raises(UnsupportedLayout, match=f"the cookie has {field}"):
            validate_cookies(cluster, _place(tmp_path), "b1")
    (tmp_path / "l" / "current" / "0.log").write_bytes(b"")
    cluster.known = None
    with pytest.raises(UnsupportedLayout, match="is here, but not in the cluster"):
        validate_cookies(cluster, _place(tmp_path), "b1")
    for path in tmp_path.rglob("VERSION"):
        path.unlink()
    with pytest.raises(UnsupportedLayout, match="has data, but no cookie to identify the bookie"):
        validate_cookies(cluster, _place(tmp_path), "b1")
    cluster.known = SimpleNamespace(cookie=written)
    with pytest.raises(UnsupportedLayout, match="no cookie here, but the cluster has one"):
        validate_cookies(cluster, _place(tmp_path), "b1")
    assert 1 == len(cluster.written)


@pytest.mark.parametrize("apart", [False, True])
def test_directories_of_a_bookie_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """Its index lies where its conf says, in a directory of its own too."""
    monkeypatch.setattr(registered_bookie, "validate_cookies", lambda *_: "instance")
    for name in ("j", "l", *["i"][:apart]):
        (tmp_path / name / "current").mkdir(parents=True)
    lines = [f"journalDirectories={tmp_path / 'j'}", f"ledgerDirectories={tmp_path / 'l'}"]
    conf = tmp_path / "bk_server.conf"
    conf.write_text("\n".join([*lines, *[f"indexDirectories={tmp_path / 'i'}"][:apart]]))
    nobody: Any = None
    with cluster_bookie(nobody, conf, "interleaved", bookie_id="b1") as made:
        made.storage.set_master_key(7, b"k")
        made.checkpoint()
    found = sorted(path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("7.idx"))

    assert ["i" if apart else "l"] == found
    with HierarchicalIndex(tmp_path / found[0]) as index:
        assert [7] == [ledger.ledger for ledger in index.ledgers()]


# -- watches


class _Events:
    """Calls wait here until they are made."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def call(self, callback: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """Keep a call."""
        self.waiting.append((delay_seconds, callback))

    def step(self) -> float:
        """Make the first call that waits; return after how long it was to be made."""
        after, what = self.waiting.pop(0)
        what()
        return after


class _Nodes:
    """A cluster whose answers are given: an exception is raised."""

    root = "/ledgers"

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.watches: list[Any] = []
        self.connection = self

    def request(self, path: str, what: str, *, watch: Any) -> Any:
        """Return or raise what is there."""
        found = self.answers.get((path, what))
        if isinstance(found, Exception):
            raise found
        self.watches.append(watch)
        return found


_BOOKIES = ("/ledgers/available", "get_children")
_READ_ONLY = ("/ledgers/available/readonly", "get_children")


def test_a_watch_is_tried_again() -> None:
    """A look that ZooKeeper does not answer is made again, a little later, until it is answered;
    what changed meanwhile is told once."""
    nodes, events, told = _Nodes(), _Events(), []
    nodes.answers = {_BOOKIES: MetadataUnavailable("no server"), _READ_ONLY: ["b2"]}
    watch = BookieWatch(cast("Any", nodes), cast("Any", events), lambda *now: told.append(now))
    for _ in range(3):
        events.step()
        assert [1] == [after > 0 for after, _ in events.waiting]
    assert [] == told
    nodes.answers[_BOOKIES] = ["b1", "readonly"]
    events.step()

    assert [({"b1"}, {"b2"})] == told
    assert [] == events.waiting
    watch.on_event(None)
    events.step()
    assert 1 == len(told)
    nodes.answers[_READ_ONLY] = []
    watch.on_event(None)
    events.step()
    assert ({"b1"}, frozenset()) == told[-1]
    watch.on_event(None)
    watch.end()
    nodes.answers[_BOOKIES] = []
    events.step()
    watch.on_event(None)
    assert [] == events.waiting
    assert 2 == len(told)


def test_a_folder_that_is_not_there_is_watched() -> None:
    """Without a folder of read-only bookies there are none, and its making is waited for."""
    nodes, events, told = _Nodes(), _Events(), []
    nodes.answers = {_BOOKIES: ["b1"], _READ_ONLY: NoNodeError()}
    BookieWatch(cast("Any", nodes), cast("Any", events), lambda *now: told.append(now))
    events.step()

    assert [({"b1"}, frozenset())] == told
    assert 2 == len(nodes.watches)


def test_a_watch_of_a_ledger() -> None:
    """Newer versions are told, each once, then its end, once."""
    nodes, events, told = _Nodes(), _Events(), []
    path = ("/ledgers/L7", "get")

    def version(number: int) -> tuple[bytes, Any]:
        return b"x", SimpleNamespace(version=number, czxid=1, mzxid=1, ctime=0, mtime=0)

    watch = LedgerWatch(
        cast("Any", nodes),
        cast("Any", events),
        path[0],
        cast("Any", lambda value: value.version),
        cast("Any", told.append),
    )
    for answer in (MetadataUnavailable("x"), version(3), version(3), version(2), version(5)):
        nodes.answers[path] = answer
        if not events.waiting:
            watch.on_event(None)
        events.step()
    assert [3, 5] == told
    nodes.answers[path] = NoNodeError()
    watch.on_event(None)
    watch.on_event(None)
    events.step()
    events.step()

    assert [3, 5, None] == told


# -- bookies that are asked by an audit


class _Asked:
    """A bookie that gives no answer, and what time it takes it."""

    extended = True

    def __init__(self, takes: float) -> None:
        self.now, self.takes, self.asked = 1000.0, takes, 0

    def get(self, _: str) -> _Asked:
        """Return itself."""
        return self

    def mark_unreachable(self, _: str) -> None:
        """Do nothing."""

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def availability_many(self, ledgers: Any, errors: dict[Any, Any]) -> Any:
        """Take some time."""
        self.asked += 1
        self.now += self.takes
        errors.update((name, BookieUnavailable("no answer")) for name in ledgers)
        return iter(())

    def read_entry(self, *_: object) -> bytes:
        """Give no answer."""
        raise BookieUnavailable("no answer")


def _times_asked(monkeypatch: pytest.MonkeyPatch, takes: float, *waits: float) -> list[int]:
    """Return how often a bookie has been asked after each of these times, asked in each."""
    asked = _Asked(takes)
    monkeypatch.setattr(audited_bookies, "time", asked)
    bookie = AuditedBookie("b1", cast("Any", asked))
    found = []
    for wait in (0.0, *waits):
        asked.now += wait
        errors: dict[Any, Any] = {}
        assert {} == dict(bookie.availability_many([7], errors))
        assert [BookieUnavailable] == list(map(type, errors.values()))
        found.append(asked.asked)
    return found


def test_silence_is_left_alone_for_ten_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that gave no answer for 2 seconds is not asked for 20; then it is, again."""
    assert [1, 1, 1, 2, 2, 3] == _times_asked(monkeypatch, 2.0, 1.0, 18.9, 0.2, 19.9, 0.2)


def test_a_quick_refusal_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails within a tenth of a second is asked each time."""
    assert [1, 2, 3] == _times_asked(monkeypatch, 0.09, 0.0, 0.0)
    assert [1, 1, 1] == _times_asked(monkeypatch, 0.11, 0.0, 0.0)


@pytest.mark.parametrize(
    ("words", "live", "looks"),
    [
        ([], True, 1),
        ([], False, 0),
        (["--compat", "bookkeeper"], True, 0),
        (["--compat", "bookkeeper"], False, 0),
        (["--looks", "3"], True, 3),
        (["--retries", "3"], True, 3),
        (["--looks", "0"], True, 0),
        (["--looks", "2", "--compat", "bookkeeper"], True, 2),
    ],
)
def test_how_often_silent_bookies_are_asked_again(words: list[str], live: bool, looks: int) -> None:
    """A live audit asks once more, one by upstream's rules does not, unless it is told to."""
    args = make_parser().parse_args(["audit", "zk://h:1/ledgers", *words])

    assert looks == audit_options_from_args(args, live).rechecks
