"""Bookies as an audit asks them over the wire: what is an answer, what is none, what is a loss."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport
from bkstore.errors import (
    IllegalOperation,
    ListingUnsupported,
    NoSuchLedger,
)
from bkstore.formats.metadata.service_info import ServiceInfo, decode_service_info
from bkstore.ids import LedgerId
from bkstore.network import AuditedBookies
from bkstore.network.audited_bookies import MAX_CONCURRENT_REQUESTS
from bkstore.wire.status_codes import Status
from tests.network.listing_servers import HungUp, Listing, asked_ledger, list_of, refusal
from tests.wire.client.scripted import Peer, served
from tests.worlds.audits import FULL, closed

WHOLE = range(6)
QUICK = 0.4
"""Seconds that a bookie has to answer in where one does not, or does not always."""


def _whole(request: Any) -> bytes:
    return list_of(request, *WHOLE)


def _silent(_: Any) -> None:
    return None


def _hang_up(_: Any) -> bytes:
    raise HungUp


@contextmanager
def _bookie(
    lists: Callable[[Any], bytes | None], reads: bool = False
) -> Iterator[tuple[str, Listing]]:
    """Yield the id of a bookie that answers so, and what it was asked."""
    script = Listing(lists, reads=reads)
    with served(script) as server:
        yield "{}:{}".format(*server.address), script


def _audit(
    name: str, ledgers: int = 1, looks: int = 0, timeout: float = 60.0, **options: Any
) -> AuditReport:
    """Audit ledgers that lie on two sound bookies and the one in question."""
    store = MemoryStore()
    ensemble = ("b1", "b2", name)
    for number in range(7, 7 + ledgers):
        store.create(closed(number, ensemble=ensemble))
    for each in ensemble:
        store.register_bookie(each)
    with AuditedBookies(store, {"b1": FULL, "b2": FULL}, timeout=timeout) as bookies:
        auditor = Auditor(
            store,
            bookies,
            options=AuditOptions(rechecks=looks, recheck_delay=0.0, **options),
            wait=lambda _: None,
        )
        return auditor.run()


def _categories(report: AuditReport) -> dict[str, int]:
    return dict(report.counts)


def test_no_such_ledger_is_nothing_there() -> None:
    """A bookie that answers ENOLEDGER holds nothing of the ledger, which is a loss."""
    with _bookie(lambda request: refusal(request, Status.ENOLEDGER)) as (name, _):
        report = _audit(name)

    assert {"below_write_quorum": 1} == _categories(report)
    assert list(WHOLE) == list(report.violations[0].missing or ())


@pytest.mark.parametrize(
    "status", [Status.EIO, Status.EUA, Status.ETOOMANYREQUESTS, Status.EUNKNOWNLEDGERSTATE]
)
def test_an_error_is_no_answer(status: Status) -> None:
    """Any other status says nothing of what is there: never a loss, and the bookie is named."""
    with _bookie(lambda request: refusal(request, status)) as (name, script):
        report = _audit(name, ledgers=3)

    assert {"bookie_unavailable": 3} == _categories(report)
    assert f"bookie {name}" in report.violations[0].detail
    assert f"answered {status.name}" in report.violations[0].detail
    assert 3 == len(script.asked)


def test_nobody_there() -> None:
    """A registered bookie at whose address nobody listens gives no answer."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        name = "{}:{}".format(*taken.getsockname())
    report = _audit(name, ledgers=3)

    assert {"bookie_unavailable": 3} == _categories(report)
    assert "no connection: Connection refused" in report.violations[0].detail


def test_silence_is_no_answer_and_soon_over() -> None:
    """A bookie that accepts connections and says nothing is given up after its time, however many
    ledgers it has; the next batches do not wait for it."""
    with _bookie(_silent) as (name, script):
        report = _audit(
            name, ledgers=3 * MAX_CONCURRENT_REQUESTS, batch=MAX_CONCURRENT_REQUESTS, timeout=QUICK
        )

    assert {"bookie_unavailable": 3 * MAX_CONCURRENT_REQUESTS} == _categories(report)
    assert MAX_CONCURRENT_REQUESTS == script.asked.count("GET_LIST_OF_ENTRIES_OF_LEDGER")


def test_a_bookie_that_lists_nothing_has_lost_nothing() -> None:
    """A bookie that answers reads and no list, as a real one with db storage, is named with the
    way to give its directory; nothing is lost or unavailable, and the run is no pass."""
    with _bookie(_silent, reads=True) as (name, script):
        report = _audit(name, ledgers=300, looks=1, batch=100, timeout=QUICK)
    (line,) = [line for line in report.summary() if line.startswith("not judged: what")]

    assert ([], {}) == (report.violations, _categories(report))
    assert (300, False) == (report.checked, report.clean)
    assert f"what {name} holds of 300 ledgers: it answers reads" in line
    assert f"{name}=DIR" in line
    assert 0 == report.rechecks  # to look again would not help
    assert {"GET_LIST_OF_ENTRIES_OF_LEDGER": 101, "READ_ENTRY": 1} == Counter(script.asked)


def test_a_bookie_that_does_not_know_the_request() -> None:
    """EBADREQ, as from a bookie that is too old, is the same: it lists nothing."""
    with _bookie(lambda request: refusal(request, Status.EBADREQ)) as (name, _):
        report = _audit(name)

    assert ([], [name]) == (report.violations, list(report.unlisted))
    assert not report.clean


def test_what_is_known_to_be_lost_beside_a_bookie_without_lists() -> None:
    """A bookie without lists that says that it does not know a ledger holds nothing of it."""

    def known(request: Any) -> bytes | None:
        return refusal(request, Status.ENOLEDGER) if asked_ledger(request) == 8 else None

    with _bookie(known, reads=True) as (name, _):
        report = _audit(name, ledgers=3, timeout=QUICK)

    assert [("below_write_quorum", LedgerId.of(8))] == [row[:2] for row in report.violations]
    assert 2 == report.unlisted[name].ledgers


def test_a_bookie_that_was_quiet_for_a_while() -> None:
    """One that let the time of some lists run out, and lists again when it is asked once more, is
    none without lists: all is judged."""

    def lists(request: Any) -> bytes | None:
        return _whole(request) if "READ_ENTRY" in script.asked else None

    script = Listing(lists, reads=True)
    with served(script) as server:
        report = _audit("{}:{}".format(*server.address), ledgers=5, timeout=QUICK)

    assert report.clean
    assert 5 == report.checked


def test_one_that_has_listed_is_slow_not_without_lists() -> None:
    """After a list has come, silence is silence."""
    with _bookie(
        lambda request: _whole(request) if asked_ledger(request) == 7 else None, reads=True
    ) as (name, _):
        report = _audit(name, ledgers=4, timeout=QUICK)

    assert {"bookie_unavailable": 3} == _categories(report)
    assert {} == report.unlisted


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda request: b"\xff" * 9, "not a v3 response: "),
        (lambda request: list_of(request, 1, ledger=99), "the answer is of ledger 99"),
        (
            lambda request: list_of(request, *WHOLE)[:-9] + b"\x7f" * 9,
            "list of entries of ledger 9",
        ),
        (_hang_up, "the connection is lost"),
    ],
    ids=["no message", "another ledger", "no list", "no connection"],
)
def test_bytes_that_are_no_answer(wrong: Callable[[Any], bytes], reason: str) -> None:
    """An answer that cannot be is that bookie's failure for that ledger, with its id and the
    reason; what is under way beside it is asked for again, and judged."""

    def lists(request: Any) -> bytes:
        return wrong(request) if asked_ledger(request) == 9 else list_of(request, 0, 1, 2, 3, 4)

    with _bookie(lists, reads=True) as (name, _):
        report = _audit(name, ledgers=8)
    (row,) = [row for row in report.violations if row.category == "bookie_unavailable"]

    assert LedgerId.of(9) == row.ledger
    assert f"bookie {name}" in row.detail
    assert reason in row.detail
    assert {"bookie_unavailable": 1, "below_write_quorum": 7} == _categories(report)


def test_a_connection_that_is_lost() -> None:
    """A bookie that ends its connections now and then is asked on for what is left."""
    left = [3]

    def lists(request: Any) -> bytes:
        if asked_ledger(request) % 40 == 0 and left[0]:
            left[0] -= 1
            raise HungUp
        return _whole(request)

    with _bookie(lists, reads=True) as (name, _):
        report = _audit(name, ledgers=100)

    assert report.clean
    assert 0 == left[0]


def test_requests_under_way_are_bounded() -> None:
    """As many requests as `MAX_CONCURRENT_REQUESTS` have no answer at a time, and no more."""
    most, ledgers = 0, 3 * MAX_CONCURRENT_REQUESTS + 50

    class Holding(Listing):
        def __call__(self, peer: Peer) -> None:
            nonlocal most
            waiting = []
            for message in peer.requests():
                waiting.append(self._answer(message))
                if len(waiting) == MAX_CONCURRENT_REQUESTS or len(self.asked) == ledgers:
                    most = max(most, len(waiting) + len(peer._frames))
                    for each in waiting:
                        peer.answer(each or b"")
                    waiting = []

    with served(Holding(_whole)) as server:
        report = _audit("{}:{}".format(*server.address), ledgers=ledgers)

    assert report.clean
    assert MAX_CONCURRENT_REQUESTS == most


def test_single_calls_raise() -> None:
    """A single question raises what an audit notes; without ledgers there is no question."""
    store = MemoryStore()
    with _bookie(lambda request: refusal(request, Status.ENOLEDGER)) as (name, _):
        store.register_bookie(name)
        store.register_bookie("nowhere")
        with AuditedBookies(store) as bookies:
            bookie: Any = bookies[name]
            with pytest.raises(NoSuchLedger):
                bookie.availability(7)
            with pytest.raises(ListingUnsupported, match=f"support for scopes.*{name}=DIR"):
                bookie.availability(LedgerId(5, 1))
            with pytest.raises(IllegalOperation):
                bookie.availability_many()
            assert {name} == set(bookies)
            assert "nowhere" not in bookies  # its id is not an address


class _HalfRegistered(MemoryStore):
    """A bookie of it is listed, and its registration is gone, or tells no address."""

    def service_info(self, bookie: str) -> ServiceInfo | None:
        return None if bookie == "b1" else decode_service_info(b"", bookie)


def test_a_registration_without_an_address_is_no_bookie(tmp_path: Path) -> None:
    """Who is listed can be asked for; an audit that keeps its steps passes the others over."""
    store = _HalfRegistered()
    for each in ("b1", "127.0.0.1:1"):
        store.register_bookie(each)
    options = AuditOptions(rechecks=0)
    with AuditedBookies(store, {"b2": FULL}) as bookies:
        report = Auditor(store, bookies, options=options).run(resume=tmp_path / "steps")

        assert 0 == report.checked
        assert (["127.0.0.1:1", "b2"], 2) == (sorted(bookies), len(bookies))
        assert sorted(bookies) == [name for name, _ in sorted(bookies.items())]


def test_a_bookie_that_goes_while_they_are_listed(tmp_path: Path) -> None:
    """An audit that keeps its steps begins though a bookie unregisters meanwhile."""

    class Going(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise KeyError(name)

        def get(self, name: str, default: Any = None) -> Any:
            return default

        def values(self) -> Any:
            return (self[name] for name in self)

    report = Auditor(MemoryStore(), Going(b1=FULL)).run(resume=tmp_path / "steps")

    assert 0 == report.checked
