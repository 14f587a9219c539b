"""Check the states of ledgers.

A state has no checksum in an index file. It can be compared with its own fields, a password, the
explicit LAC's digest, the index of the other layout if an interrupted conversion left both, and the
journal (`journals`). A fence without a second copy cannot be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, SystemRefused
from bkstore.formats.entry import decode_explicit_lac, encode_explicit_lac, master_key
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.offline.check.coverage import Coverage
from bkstore.offline.check.findings import CheckFinding
from bkstore.storage.directories.layout import find_holdings
from bkstore.storage.read_only.bookie_dir import BookieDir

ClientSecret = tuple[str | int, bytes | str | None]
"""The digest type and password of a client."""


def check_states(
    index: EntryIndex, ledgers: Iterable[LedgerId], secret: ClientSecret | None, coverage: Coverage
) -> Iterator[CheckFinding]:
    """Yield findings on the states of ledgers. Cost: one look-up each."""
    for ledger in ledgers:
        coverage.ledgers += 1
        try:
            state, findings = index.checked_state(ledger)
        except BkstoreError as error:
            yield CheckFinding.from_error("state", error, ledger)
            continue
        coverage.states += 1
        yield from CheckFinding.from_findings("state", findings)
        if secret is not None:
            digest_type, password = secret
            yield from _check_with_secret(ledger, state, digest_type, password)


def _check_with_secret(
    ledger: LedgerId, state: LedgerState, digest_type: str | int, password: bytes | str | None
) -> Iterator[CheckFinding]:
    """Yield findings where a state differs from what a client with this password sends."""
    if password is not None and state.master_key != master_key(password):
        problem = "is missing"
        if state.master_key.strip(b"\0"):
            problem = "does not match the password: of another one, or damaged"
        detail = f"the master key of ledger {ledger} {problem}"
        yield CheckFinding("state", "oddity", detail, ledger=ledger)
    if state.explicit_lac is None:
        return
    try:
        # A client that sends the same LAC makes the same bytes, with their digest.
        _, lac = decode_explicit_lac(state.explicit_lac)
        expected = encode_explicit_lac(ledger, lac, digest_type, password)
    except (CorruptionError, InvalidArgument):  # `checked_state` has reported it
        return
    if state.explicit_lac != expected:
        detail = f"the digest of the explicit LAC of ledger {ledger} does not match"
        yield CheckFinding("state", "damage", detail, ledger=ledger)


def check_other_layout(bookie: BookieDir) -> Iterator[CheckFinding]:
    """Yield findings on ledgers whose states differ between index files and databases, if both are
    there, as after an interrupted conversion: the bookie uses only one of them."""
    other_layout = "rocksdb" if bookie.layout == "idx" else "idx"
    if not any(other_layout in find_holdings(current) for current in bookie.folders.index):
        return
    try:
        with BookieDir(bookie.path, live=bookie.live, layout=other_layout) as other_bookie:  # type: ignore[arg-type]
            listings = [each.index.list_readable_ledgers() for each in (bookie, other_bookie)]
            yield from CheckFinding.from_findings("index", listings[1].findings)
            for ledger in sorted({*listings[0].ledgers, *listings[1].ledgers}):
                if any(listing.may_include(ledger) for listing in listings):
                    continue  # damage hides one of the states, and is reported
                own = _state_or_none(bookie.index, ledger)
                other = _state_or_none(other_bookie.index, ledger)
                if own != other:
                    states = f"{own} by {bookie.layout}, {other} by {other_layout}"
                    detail = f"the state of ledger {ledger} differs between the layouts: {states}"
                    yield CheckFinding("state", "oddity", detail, ledger=ledger)
    except BkstoreError as error:
        yield CheckFinding.from_error("index", error)


def _state_or_none(index: EntryIndex, ledger: LedgerId) -> LedgerState | str:
    """Return a ledger's state, or "none" if it cannot be read."""
    try:
        return index.state(ledger)
    except SystemRefused:
        raise
    except BkstoreError:
        return "none"
