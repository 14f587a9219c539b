"""Which ledger and which entries the words of a command mean."""

from __future__ import annotations

import argparse

import pytest

from bkstore import InvalidArgument, LedgerId
from bkstore.cli.terminal.ledger_options import ledger_from_args, scope_from_args
from bkstore.cli.terminal.shared_options import parse_range

LAST = 2**63 - 2
"""The highest entry id."""


def _args(
    ledger: str | None = None,
    scope: str | None = None,
    name: str | None = None,
    word: str | None = None,
) -> argparse.Namespace:
    return argparse.Namespace(
        ledger=word, ledger_id=ledger, ledger_scope_id=scope, ledger_qualified_name=name
    )


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        (None, 0),
        ("5", 5),
        ("15", 15),
        ("0x5", 5),
        ("0X1f", 31),
        ("0xffffffffffffffff", 2**64 - 1),
        ("-1", 2**64 - 1),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_scopes(text: str | None, scope: int) -> None:
    """A scope is decimal or hex with 0x; negative ones are taken as unsigned."""
    assert scope == scope_from_args(_args("1", text))
    assert LedgerId(scope, 7) == ledger_from_args(_args("7", text))
    assert LedgerId(scope, 7) == ledger_from_args(_args(word="7", scope=text))


@pytest.mark.parametrize("text", ["", "x", "0x", "1f", "0x11111111111111111", "1.0", " 1"])
def test_what_is_no_scope(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidArgument, match="not a ledger scope id"):
        scope_from_args(_args("1", text))


def test_names_and_scopes() -> None:
    """A qualified name says its scope; --ledger-scope-id may say the same, and no other."""
    name = f"{5:016x}{7:016x}"

    assert LedgerId(5, 7) == ledger_from_args(_args(name=name))
    assert LedgerId(5, 7) == ledger_from_args(_args(name=name, scope="0x5"))
    assert LedgerId(5, 7) == ledger_from_args(_args(name, "5"))
    for args in (_args(name=name, scope="6"), _args(name, "6"), _args(name=name, scope="0")):
        with pytest.raises(InvalidArgument, match="of scope 5, but --ledger-scope-id differs"):
            ledger_from_args(args)
    for wrong in (name[1:], name + "0", "7"):
        with pytest.raises(InvalidArgument, match="32 hex digits"):
            ledger_from_args(_args(name=wrong))


def test_ranges_of_entries() -> None:
    """Both ends count, one entry is a range, up to the highest id."""
    for first, last in ((0, 0), (3, 9), (0, LAST), (LAST, LAST)):
        assert (first, last) == parse_range(f"{first}:{last}")
    for text in ("9:3", f"0:{LAST + 1}", "3", "3:", ":3", "-1:3", "a:b", "1:2:3", "1: 2"):
        with pytest.raises(InvalidArgument):
            parse_range(text)
