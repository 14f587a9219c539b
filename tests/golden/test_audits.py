"""Audits of clusters that real bookies and the real client made, beside the real auditor's reports.

The truth is in `held`; what the real auditor said beyond it, or missed, is one of the defects
that `docs/parity.md` lists, and appears under ``compat="bookkeeper"`` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

from bkstore import BookieDir
from bkstore.availability import Availability
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import (
    AuditOptions,
    Auditor,
    AuditReport,
    AvailabilitySource,
    DirectoryBookie,
)
from bkstore.errors import BookieUnavailable
from bkstore.formats.metadata.serialized import decode
from bkstore.ids import LedgerId
from tests.models.audit import category, segments, stores

CLASSES = {"none": "no_replica"}
COUNTERS = {
    "numLedgersFoundHavingNoReplicaOfAnEntry": "no_replica",
    "numLedgersFoundHavingLessThanAQReplicasOfAnEntry": "below_ack_quorum",
    "numLedgersFoundHavingLessThanWQReplicasOfAnEntry": "below_write_quorum",
}
Compat = Literal["bookkeeper"] | None
Missing = dict[tuple[int, int, str], list[int]]


class Snapshot:
    """A bookie as the JSON describes it at one time: its runs, and whether it answers."""

    def __init__(self, document: Any, when: str, name: str, compat: Compat) -> None:
        """Take the runs of each ledger."""
        ledgers = document[when]["state"]["ledgers"]
        self.held = {each["ledger"]: each["bookies"][name]["held"] for each in ledgers}
        self.throws = compat is not None and document["storage"] == "db"

    def availability(self, ledger: int | LedgerId) -> Availability:
        """Answer with the runs; a real db bookie answers only that it knows no such ledger."""
        runs = self.held[LedgerId.of(ledger).ledger]
        if runs and self.throws:
            raise BookieUnavailable("request timed out")
        return Availability.from_ranges([(first, last) for first, last in runs])


@pytest.fixture(params=["clean", "after", "directories"])
def asked(
    request: pytest.FixtureRequest, cluster: tuple[Path, Any]
) -> Iterator[tuple[Any, str, Any]]:
    """Yield (document, phase, function from compat to bookies): from `held`, and from files."""
    folder, document = cluster
    with ExitStack() as stack:

        def bookies(compat: Compat) -> dict[str, AvailabilitySource]:
            if request.param != "directories":
                return {
                    name: Snapshot(document, request.param, name, compat)
                    for name in document["bookies"]
                }
            tops = {path.name: path for path in folder.glob("bookie-*")}
            return {
                name: DirectoryBookie(stack.enter_context(BookieDir(top)), compat)
                for name, top in tops.items()
            }

        yield document, "clean" if request.param == "clean" else "after", bookies


def _audit(asked: Any, compat: Compat) -> AuditReport:
    document, when, bookies = asked
    store = MemoryStore()
    for each in document[when]["state"]["ledgers"]:
        store.create(decode(bytes.fromhex(each["metadata_hex"]), each["ledger"]))
    options = AuditOptions(rechecks=0, compat=compat)
    return Auditor(store, bookies(compat), options=options).run()


def _missing(report: AuditReport) -> Missing:
    return {
        (v.ledger.ledger, v.first_entry or 0, v.bookie or ""): v.missing.entries().tolist()
        for v in report.violations
    }


def _truth(document: Any, when: str) -> tuple[Missing, dict[int, str]]:
    """Return what `held` implies, entry by entry: missing entries, and category by ledger."""
    missing: Missing = {}
    categories = {}
    for each in document[when]["state"]["ledgers"]:
        metadata = decode(bytes.fromhex(each["metadata_hex"]), each["ledger"])
        held = {
            name: {e for first, last in what["held"] for e in range(first, last + 1)}
            for name, what in each["bookies"].items()
        }
        lacking: dict[int, int] = {}
        for first, last, ensemble in segments(metadata) if metadata.closed else []:
            for index, name in enumerate(ensemble):
                due = [e for e in range(first, last + 1) if stores(e, index, each["E"], each["W"])]
                gone = [e for e in due if e not in held[name]]
                for entry in gone:
                    lacking[entry] = lacking.get(entry, 0) + 1
                if gone:
                    missing[each["ledger"], first, name] = gone
        if lacking:
            left = each["W"] - max(lacking.values())
            categories[each["ledger"]] = category(left, each["W"], each["A"])
    return missing, categories


def test_what_held_implies(asked: Any) -> None:
    """By default exactly the replicas that are not held are reported; no false alarm."""
    document, when, _ = asked
    missing, categories = _truth(document, when)
    report = _audit(asked, None)

    assert missing == _missing(report)
    assert categories == {v.ledger.ledger: v.category for v in report.violations}
    assert (when == "after") == bool(missing)
    removed = {(v["ledger"], v["bookie"]) for v in document["violations"]}
    assert (removed if when == "after" else set()) == {(key[0], key[2]) for key in missing}
    states = [each["state"] for each in document[when]["state"]["ledgers"]]
    assert {"open": states.count("OPEN")} == dict(report.skipped)


def test_what_the_real_auditor_reported(asked: Any) -> None:
    """Under compat the missing entries, verdicts and counters are those of the real auditor."""
    document, when, _ = asked
    reports = document[when]["reports"]
    real = reports["replicas_check"]
    report = _audit(asked, "bookkeeper")
    expected = {
        (each["ledger"], each["segment_first_entry"], each["bookie"]): each["entries"]
        for each in real["missing"]
    }
    verdicts = {
        each["ledger"]: CLASSES.get(each["class"], each["class"]) for each in real["verdicts"]
    }
    silent: dict[int, set[str]] = {}
    for each in real["unavailable_bookies"]:
        silent.setdefault(each["ledger"], set()).add(each["bookie"])
    counters = reports["counters_of_last_ledger_range"]

    assert expected == _missing(report)
    assert verdicts == {v.ledger.ledger: v.category for v in report.violations}
    assert silent == {name.ledger: set(who) for name, who in report.unanswered.items()}
    assert counters == {name: report.counts[which] for name, which in COUNTERS.items()}


def test_false_alarms_are_there_to_be_left_out(cluster: tuple[Path, Any]) -> None:
    """The golden reports hold what the default must not repeat: alarms, or silence."""
    _, document = cluster
    real = document["clean"]["reports"]["replicas_check"]

    assert real["missing"] or real["unavailable_bookies"]


def test_the_last_range_alone_counts_as_built() -> None:
    """Under compat durability counters are of the last leaf of ledger ids; by default of all."""
    store = MemoryStore()
    raw = b"BookieMetadataFormatVersion\t1\n1\n1\n10\n0\tbookie-1\n0\tCLOSED"
    for ledger in (3, 9_999, 10_000):
        store.create(decode(raw, ledger))

    class Empty:
        def availability(self, _: int | LedgerId) -> Availability:
            return Availability()

    built, whole = (
        Auditor(store, {"bookie-1": Empty()}, options=AuditOptions(rechecks=0, compat=compat)).run()
        for compat in ("bookkeeper", None)
    )

    assert [3, 9_999, 10_000] == [each.ledger.ledger for each in built.violations]
    assert 1 == built.stats["NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY"]
    assert 3 == whole.stats["NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY"]
