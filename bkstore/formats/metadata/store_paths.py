"""Paths of ledgers in the metadata store, below ``/ledgers``. Flat, short and long hierarchical
paths are BookKeeper's and for scope 0 only. Other scopes have a hexadecimal layout of bkstore's.
Keys in a key/value store are UUIDs, as in BookKeeper's etcd driver (`EtcdUtils`). Page:
`docs/formats/ledgermetadata.md`. Source: `util/StringUtils`, `meta/FlatLedgerManager`."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

from bkstore.arguments import check_compat
from bkstore.availability import Compat
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId

_MAX_SHORT_ID = 10**10 - 1
_INT32_MAX = 2**31 - 1


def _check_scope_0(ledger: int | LedgerId) -> int:
    """Return the ledger number; raises `InvalidArgument` for a ledger with a scope."""
    ledger_id = LedgerId.of(ledger)
    if ledger_id.scope:
        raise InvalidArgument(f"this layout cannot store scope {ledger_id.scope:#x}")
    return ledger_id.ledger


def flat_path(ledger: int | LedgerId) -> str:
    """Return the path of the flat manager: at least ten digits.

    >>> flat_path(4660)
    '/L0000004660'
    """
    return f"/L{_check_scope_0(ledger):010d}"


def short_path(ledger: int | LedgerId, compat: Compat | None = None) -> str:
    """Return the short hierarchical path: ten decimal digits, in levels of 2, 4 and 4. Raises
    `InvalidArgument` for an id of more digits. ``compat="bookkeeper"`` cuts it to its first ten, as
    `LegacyHierarchicalLedgerManager` does, so that several ledgers share the path.

    >>> short_path(4660)
    '/00/0000/L4660'
    """
    check_compat("compat", compat)
    number = _check_scope_0(ledger)
    if number > _MAX_SHORT_ID and compat is None:
        raise InvalidArgument(f"ledger {number} has more digits than a short path")
    digits = f"{number:010d}"
    return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:10]}"


def long_path(ledger: int | LedgerId) -> str:
    """Return the long hierarchical path: nineteen decimal digits, in levels of 3, 4, 4, 4 and 4.

    >>> long_path(4660)
    '/000/0000/0000/0000/L4660'
    """
    digits = f"{_check_scope_0(ledger):019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def hierarchical_path(ledger: int | LedgerId) -> str:
    """Return the path of the default manager: short below 2^31 - 1, long from there on."""
    number = _check_scope_0(ledger)
    return short_path(number) if number < _INT32_MAX else long_path(number)


def tree_path(ledger: int | LedgerId) -> str:
    """Return the path of a ledger of any scope; in each scope paths sort as ids do. Scope 0: the
    long hierarchical path. Others: ``S``, scope, ledger in sixteen hex digits each.

    >>> tree_path(LedgerId(1, 4660))
    '/S0000000000000001/0000/0000/0000/L1234'
    """
    ledger_id = LedgerId.of(ledger)
    if ledger_id.scope == 0:
        return long_path(ledger_id)
    digits = f"{ledger_id.ledger:016x}"
    return f"/S{ledger_id.scope:016x}/{digits[:4]}/{digits[4:8]}/{digits[8:12]}/L{digits[12:]}"


def uuid_path(ledger: int | LedgerId) -> str:
    """Return the key of a ledger in a key/value store; keys sort as ids do.

    >>> uuid_path(LedgerId(1, 4660))
    '/00000000-0000-0001-0000-000000001234'
    """
    return f"/{LedgerId.of(ledger).uuid}"


def _parse_decimal(text: str) -> LedgerId:
    return LedgerId(0, int(text.replace("/L", "").replace("/", "")))


def _parse_hex(text: str) -> LedgerId:
    """Return the ledger id of a path of hex digits, cut by ``/`` and ``/L``."""
    digits = text.replace("/L", "").replace("/", "")
    scope = int(digits[:16], 16)
    if scope == 0:
        raise InvalidArgument("scope 0 has no S path")
    return LedgerId(scope, int(digits[16:], 16))


def _parse_uuid(text: str) -> LedgerId:
    return LedgerId.from_uuid(UUID(text))


_PATH_FORMS: dict[re.Pattern[str], Callable[[str], LedgerId]] = {
    re.compile(r"/([0-9]{3}(?:/[0-9]{4}){3}/L[0-9]{4})"): _parse_decimal,
    re.compile(r"/([0-9]{2}/[0-9]{4}/L[0-9]{4})"): _parse_decimal,
    re.compile(r"/L([0-9]{10,19})"): _parse_decimal,
    re.compile(r"/S([0-9a-f]{16}(?:/[0-9a-f]{4}){3}/L[0-9a-f]{4})"): _parse_hex,
    re.compile(r"/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"): _parse_uuid,
}


def parse_path(path: str) -> LedgerId | None:
    """Return the ledger of a path of any form of this module; None for other paths.

    >>> parse_path("/00/0000/L4660"), parse_path("/LAYOUT")
    (LedgerId(scope=0, ledger=4660), None)
    """
    for pattern, parse in _PATH_FORMS.items():
        match = pattern.fullmatch(path)
        if match:
            try:
                return parse(match[1])
            except InvalidArgument:  # digits beyond 2^63-1: no ledger has this path
                return None
    return None
