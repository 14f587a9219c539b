"""Bookies that list many ledgers in one call: the same verdicts as by a call for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import BookieDir
from bkstore.cluster import Cluster, MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, AvailabilitySource, DirectoryBookie
from bkstore.cluster.audit.report import AuditReport
from bkstore.errors import BkstoreError, BookieUnavailable, NoSuchLedger
from bkstore.formats.idxfile import index_path
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import expected

BOOKIES = ["b1", "b2", "b3"]


class Single:
    """A bookie that answers for one ledger at a time."""

    def __init__(self, bookie: AvailabilitySource) -> None:
        self.availability = bookie.availability


def _filled(top: Path, kind: type[HierarchicalIndex] | type[RocksIndex]) -> MemoryStore:
    store = MemoryStore()
    for at, name in enumerate(BOOKIES):
        with kind(top / name, writable=True) as index:
            for ledger in range(40):
                due = expected(0, 99, at, 3, 2).entries()
                if ledger % 4 != at:  # else it is not here at all
                    _put(index, ledger, due[: -1 if ledger % 5 == at else None].tolist())
    for ledger in range(40):
        store.create(
            LedgerMetadata(
                LedgerId(0, ledger), 3, 2, 2, [(0, BOOKIES)], state="CLOSED",
                last_entry_id=99, length=9, digest_type="DUMMY", password=b"",
            )
        )  # fmt: skip
    return store


def _put(index: EntryIndex, ledger: int, entries: list[int]) -> None:
    index.put_many(ledger, entries, [1028] * len(entries))


def _verdicts(report: AuditReport) -> list[object]:
    return [report.violations, report.checked, report.replicas, report.unanswered, report.absent]


@pytest.mark.parametrize("compat", [None, "bookkeeper"])
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("kind", [HierarchicalIndex, RocksIndex])
def test_same_verdicts(
    tmp_path: Path,
    kind: type[HierarchicalIndex] | type[RocksIndex],
    concurrency: int,
    compat: None,
) -> None:
    """What is missing, what cannot be read and what was answered do not depend on the way of
    asking; a damaged file is told of its own ledger alone."""
    store = _filled(tmp_path, kind)
    if kind is HierarchicalIndex:
        for number in (6, 7):
            torn = tmp_path / "b1" / "current" / index_path(LedgerId(0, number))
            torn.write_bytes(torn.read_bytes()[:-3])
    options = AuditOptions(rechecks=0, concurrency=concurrency, compat=compat, batch=17)
    opened = {name: BookieDir(tmp_path / name) for name in BOOKIES}
    many = {name: DirectoryBookie(each, compat) for name, each in opened.items()}
    report = Auditor(store, many, options=options).run()
    single = {name: Single(bookie) for name, bookie in many.items()}
    expected_report = Auditor(store, single, options=options).run()

    assert _verdicts(expected_report) == _verdicts(report)
    if kind is HierarchicalIndex:
        told = [each.ledger for each in report.violations if "an error" in each.detail]

        assert {LedgerId(0, 6), LedgerId(0, 7)} == {*report.unanswered, *told}
    for each in opened.values():
        each.close()


def test_bookies_of_a_cluster(tmp_path: Path) -> None:
    """A client of a running bookie lists many ledgers too, `NoSuchLedger` for unknown ones, and
    says of each that it cannot be reached."""
    with Cluster.open(tmp_path, bookies=1) as cluster:
        names = []
        for count in (3, 1, 2):
            ledger = cluster.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            ledger.append_many([b"x"] * count)
            names.append(ledger.metadata.ledger)
        client = cluster.bookies["bookie-1"]
        errors: dict[LedgerId, BkstoreError] = {}
        model = dict(zip(names, ([0, 1, 2], [0], [0, 1]), strict=True))
        unknown = LedgerId(0, 10**9)

        assert sorted(model.items()) == [
            (name, here.entries().tolist()) for name, here in client.availability_many()
        ]
        assert [names[0]] == [
            name for name, _ in client.availability_many([unknown, names[0]], errors)
        ]
        assert NoSuchLedger is type(errors.pop(unknown))
        cluster.crash("bookie-1")
        assert [] == list(client.availability_many(names, errors))
        assert {BookieUnavailable} == {type(errors[name]) for name in names}
