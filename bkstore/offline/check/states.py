"""States of ledgers: what of them can be held against something.

A state has no checksum in an index file. What it can be held against: its own fields, the master
key that a password makes, the digest of an explicit LAC, the other layout where an interrupted
conversion left both, and the journal (`journals`). A fence of which there is no other copy cannot
be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, SystemRefused
from bkstore.formats.entry import decode_explicit_lac, encode_explicit_lac, master_key
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.offline.check.coverage import Coverage
from bkstore.offline.check.findings import CheckFinding
from bkstore.storage.directories.layout import holdings
from bkstore.storage.read_only.bookie_dir import BookieDir

Secret = tuple[str | int, bytes | str | None]
"""Digest type and password of a client."""


def check_states(
    index: EntryIndex, ledgers: Iterable[LedgerId], secret: Secret | None, coverage: Coverage
) -> Iterator[CheckFinding]:
    """Yield what is wrong with the states of ledgers. One look-up each."""
    for ledger in ledgers:
        coverage.ledgers += 1
        try:
            state, odd = index.checked_state(ledger)
        except BkstoreError as error:
            yield CheckFinding.of_error("state", error, ledger)
            continue
        coverage.states += 1
        yield from (CheckFinding.of("state", each) for each in odd)
        if secret is not None:
            yield from _by_secret(ledger, state, *secret)


def _by_secret(
    ledger: LedgerId, state: LedgerState, digest_type: str | int, password: bytes | str | None
) -> Iterator[CheckFinding]:
    """Yield what of a state a client with this password would not have sent."""
    if password is not None and state.master_key != master_key(password):
        there = bool(state.master_key.strip(b"\0"))
        why = "is not the password's: another's, or damaged" if there else "is missing"
        detail = f"the master key of ledger {ledger} {why}"
        yield CheckFinding("state", "oddity", detail, ledger=ledger)
    if state.explicit_lac is None:
        return
    try:
        _, lac = decode_explicit_lac(state.explicit_lac)
        expected = encode_explicit_lac(ledger, lac, digest_type, password)
    except (CorruptionError, InvalidArgument):  # the state's own findings tell of it
        return
    if state.explicit_lac != expected:
        detail = f"the digest of the explicit LAC of ledger {ledger} does not fit"
        yield CheckFinding("state", "damage", detail, ledger=ledger)


def check_other_layout(bookie: BookieDir) -> Iterator[CheckFinding]:
    """Yield the ledgers whose state in the layout that is not read differs from the one that is.

    Nothing where only one layout is here.
    """
    other = "rocksdb" if bookie.layout == "idx" else "idx"
    if not any(other in holdings(current) for current in bookie.folders.index):
        return
    try:
        with BookieDir(bookie.path, live=bookie.live, layout=other) as second:  # type: ignore[arg-type]
            for ledger in sorted({*bookie.index.ledgers(), *second.index.ledgers()}):
                said = [_said(index, ledger) for index in (bookie.index, second.index)]
                if said[0] != said[1]:
                    detail = (
                        f"the state of ledger {ledger} differs between the layouts: {said[0]} by "
                        f"{bookie.layout}, {said[1]} by {other}"
                    )
                    yield CheckFinding("state", "oddity", detail, ledger=ledger)
    except BkstoreError as error:
        yield CheckFinding.of_error("index", error)


def _said(index: EntryIndex, ledger: LedgerId) -> LedgerState | str:
    try:
        return index.state(ledger)
    except SystemRefused:
        raise
    except BkstoreError:
        return "none"
