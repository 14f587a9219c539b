"""How single values read in a table for people."""

from __future__ import annotations

import pytest

from bkstore import LedgerId
from bkstore.cli.screen.cells import payload_cell
from bkstore.cli.screen.short_ids import ledger_cells, short_ledger_id
from bkstore.cli.screen.text_width import truncate, width, wrap_text

WIDE = LedgerId.parse("c0ffee00-feed-4bad-9e55-0123456789ab")


def test_short_ids() -> None:
    """Ids are short where that tells them apart, whole where it would not."""
    scopes = [0, 1, 2, WIDE.signed[0]]
    alike = [LedgerId(WIDE.scope, WIDE.ledger + (n << 40)) for n in range(2)]

    assert ["7", "1…7", "2…7", "c0ffee00…456789ab"] == ledger_cells(
        scopes, [7, 7, 7, WIDE.signed[1]], "…"
    )
    assert [each.qualified_name for each in alike] == ledger_cells(
        *zip(*(each.signed for each in alike)), "…"
    )
    assert ["3", "-"] == ledger_cells([0, None], [3, None], "…")
    assert "ffffffff..0" == short_ledger_id(-1, 0, "..")


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "-"),
        (b"", ""),
        ("日本語".encode(), "日本語"),
        (b"one\ntwo", "one\\x0atwo"),
        (b"\x1b[2J", "\\x1b[2J"),
        (b"\xfc\x1b\x80 text", "\\xfc\\x1b\\x80 text"),
        (bytes(range(8)), "0x0001020304050607"),
        ("\u202e".encode(), "0xe280ae"),
        (b"a" * 401, "a" * 400 + "... (401 bytes; see --format json)"),
        (b"a" * 399 + "é".encode(), "a" * 399 + "... (401 bytes; see --format json)"),
        (bytes(201), "0x" + "00" * 200 + "... (201 bytes; see --format json)"),
    ],
    ids=range(11),
)
def test_payloads(payload: bytes | None, text: str) -> None:
    """A payload is text as far as it is text, never a control character, else hex."""
    assert text == payload_cell(payload)


def test_cut_to_cells() -> None:
    """What is cut has the cells that there are; a character of two is not halved."""
    for size in range(1, 12):
        for text in ("日本語日本語", "a日b本c語d", "plain text"):
            for end in (False, True):
                assert size >= width(truncate(text, size, keep_end=end))
    assert ("日…", "…語") == (truncate("日本語", 4), truncate("日本語", 4, keep_end=True))
    assert ["日", "本"] == wrap_text("日本", 3)
