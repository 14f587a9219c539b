"""Ledger metadata for tests: a sound one, and strategies for any."""

from __future__ import annotations

from hypothesis import strategies as st

from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment

CLOSED = LedgerMetadata(
    LedgerId.of(7),
    3,
    2,
    2,
    (Segment(0, ("b1", "b2", "b3")), Segment(10, ("b1", "b4", "b3"))),
    state="CLOSED",
    last_entry_id=25,
    length=2600,
    digest_type="CRC32C",
    password=b"pw",
)

_int64 = st.integers(-(2**63), 2**63 - 1)
_int32 = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
ledger_ids = st.builds(LedgerId, st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1)) | st.builds(
    LedgerId, st.just(0), st.integers(0, 2**63 - 1)
)


@st.composite
def metadata(draw: st.DrawFn) -> LedgerMetadata:
    """Any metadata that bytes of version 3 hold, contradictions and all."""
    state = draw(st.sampled_from(["OPEN", "IN_RECOVERY", "CLOSED"]))
    digest = draw(st.sampled_from([None, "CRC32", "HMAC", "CRC32C", "DUMMY"]))
    stored = draw(st.booleans())
    return LedgerMetadata(
        draw(ledger_ids),
        draw(_int32),
        draw(_int32),
        draw(_int32),
        tuple(
            Segment(first, tuple(ensemble))
            for first, ensemble in draw(
                st.lists(st.tuples(_int64, st.lists(texts, max_size=4)), min_size=1, max_size=4)
            )
        ),
        state=state,
        last_entry_id=draw(_int64) if state == "CLOSED" else -1,
        length=draw(_int64) if state == "CLOSED" else 0,
        digest_type=digest,
        password=None if digest is None else draw(st.binary(max_size=9)),
        ctime=draw(st.integers(0, 2**63 - 1)) if stored else -1,
        store_ctime=stored,
        custom_metadata=draw(st.dictionaries(texts, st.binary(max_size=9), max_size=4)),
        c_token=draw(_int64),
    )
