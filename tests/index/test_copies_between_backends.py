"""The content of every backend, copied into every other: nothing lost, nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.testing import generators

Rows = dict[int, int]
Content = dict[LedgerId, tuple[Rows, LedgerState]]

STATES = [
    LedgerState(),
    LedgerState(b"k" * 20),
    LedgerState(bytes(range(20)), fenced=True),
    LedgerState(b"k" * 20, explicit_lac=bytes(range(36))),
    LedgerState(b"\xff" * 20, fenced=True, explicit_lac=bytes(20)),
]


@pytest.fixture(scope="module")
def content() -> Content:
    """Return ledgers of several scopes in every shape, some empty, with states."""
    names = [LedgerId(0, n) for n in (0, 7, 263, 70_000, 2**63 - 1)]
    names += [LedgerId(s, n) for s in (1, 2**63, 2**64 - 1) for n in (7, 2**63, 2**64 - 1)]
    shapes = sorted(generators.SHAPES)
    found: Content = {}
    for at, name in enumerate(names):
        ids = generators.ids_of_shape(shapes[at % len(shapes)], 1500, at)
        places = generators.locations(ids.size, at, log_bytes=1 << 18)
        rows: Rows = {}
        for entry, location in zip(ids.tolist(), places.tolist()):
            rows.setdefault(entry, location)
        found[name] = ({} if at % 6 == 5 else rows, STATES[at % len(STATES)])
    return found


def fill(index: EntryIndex, content: Content) -> None:
    """Put content into an index, highest ledger first."""
    for name in sorted(content, reverse=True):
        rows, state = content[name]
        index.set_state(name, state)
        index.put_many(name, list(rows), list(rows.values()))


def copy_by_scan(source: EntryIndex, target: EntryIndex) -> None:
    """Copy rows in scan order and batches, states by ledger."""
    for ledger in source.ledgers():
        target.set_state(ledger, source.state(ledger))
    for batch in source.scan(700):
        for ledger, entries, locations in batch.by_ledger():
            target.put_many(ledger, entries, locations)


def copy_by_items(source: EntryIndex, target: EntryIndex) -> None:
    """Copy ledger by ledger."""
    for ledger in source.ledgers():
        target.put_many(ledger, *source.items(ledger))
        target.set_state(ledger, source.state(ledger))


def check_content(index: EntryIndex, content: Content) -> None:
    """Assert that an index has exactly this content."""
    assert sorted(content) == index.ledgers()
    for name, (rows, state) in content.items():
        entries, locations = index.items(name)

        assert sorted(rows.items()) == list(zip(entries.tolist(), locations.tolist()))
        assert state == index.state(name)
        assert Availability.from_entries(list(rows)) == index.availability(name)
        assert max(rows, default=None) == index.last_entry(name)
    assert sum(len(rows) for rows, _ in content.values()) == sum(
        batch.entry_id.size for batch in index.scan()
    )


@pytest.mark.parametrize("copy", [copy_by_scan, copy_by_items], ids=["scan", "items"])
def test_into_every_other(
    backend: Any,
    backends: list[Any],
    content: Content,
    tmp_path: Path,
    copy: Callable[[EntryIndex, EntryIndex], None],
) -> None:
    """A copy, once reopened where that is possible, has the content of the original."""
    with backend.make(tmp_path / "source") as source:
        fill(source, content)
        check_content(source, content)
        for other in backends:
            path = tmp_path / other.name
            with other.make(path) as target:
                copy(source, target)
                check_content(target, content)
            kept = other.reopen(path)
            if kept is not None:
                with kept:
                    check_content(kept, content)


def test_around(backends: list[Any], content: Content, tmp_path: Path) -> None:
    """Handed on from backend to backend and back, the content is the same."""
    first = last = backends[0].make(tmp_path / "0")
    fill(first, content)
    chain = [first]
    for at, other in enumerate([*backends[1:], *reversed(backends)], 1):
        target = other.make(tmp_path / str(at))
        chain.append(target)
        copy_by_scan(last, target)
        last = target
    check_content(last, content)
    for index in chain:
        index.close()


def test_copy_into_itself(backend: Any, content: Content, tmp_path: Path) -> None:
    """Putting back what is there changes nothing, whoever wins among equals."""
    with backend.make(tmp_path / "index") as index:
        fill(index, content)
        copy_by_items(index, index)
        check_content(index, content)


def test_limbo_is_carried_or_refused(backends: list[Any], tmp_path: Path) -> None:
    """Limbo goes with the state where the target has a place for it."""
    limbo = LedgerState(b"k" * 20, limbo=True)
    for source_backend in backends:
        with source_backend.make(tmp_path / f"from-{source_backend.name}") as source:
            if not source.supports_limbo:
                continue
            source.set_state(7, limbo)
            source.set_state(LedgerId(1, 7), limbo)
            for other in backends:
                path = tmp_path / f"{source_backend.name}-{other.name}"
                with other.make(path) as target:
                    if target.supports_limbo:
                        copy_by_items(source, target)

                        assert limbo == target.state(7) == target.state(LedgerId(1, 7))
