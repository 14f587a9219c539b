"""The violations of an audit's JSON output, read again for a plan (``bkstore repair --from``).

A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

import os
from typing import Any

from bkstore.availability import Availability
from bkstore.durability.violations import CATEGORIES, Violation
from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.syntax.json_text import parse_json
from bkstore.ids import LedgerId

_MAX_FILE_BYTES = 1 << 30


def read_violations(path: str | os.PathLike[str]) -> list[Violation]:
    """Return the violations in a file that ``bkstore audit -o FILE.json`` wrote; .jsonl likewise.

    Raises `CorruptionError` for anything else: it names the file and the row. Memory: the file.
    """
    with convert_read_errors(path):
        data = read_file(path, _MAX_FILE_BYTES, text=True)
    if os.fspath(path).endswith(".jsonl"):
        rows = [parse_json(line, path) for line in data.splitlines() if line.strip()]
    else:
        rows = parse_json(data, path)
    if not isinstance(rows, list):
        raise CorruptionError(path, None, "not the output of an audit: it is no list of rows")
    return [_parse_violation(path, number, row) for number, row in enumerate(rows, 1)]


def _parse_violation(path: str | os.PathLike[str], number: int, row: Any) -> Violation:
    """Return the violation of a row; its columns must be those of the `violations` table."""
    try:
        category, ledger_number, scope = row["category"], row["ledger_id"], row["scope_id"]
        if category not in CATEGORIES:
            raise CorruptionError(path, None, f"row {number}: unknown category {category!r}")
        ledger = None if ledger_number is None else LedgerId(scope, ledger_number)
        groups = row["missing_groups"]
        missing = None if groups is None else Availability.from_groups(groups)
        first_entry, bookie = row["first_entry"], row["bookie"]
        if not isinstance(first_entry, int | None) or not isinstance(bookie, str | None):
            raise TypeError("first_entry or bookie has another type")
        return Violation(category, ledger, first_entry, bookie, missing, str(row["detail"]))
    except (KeyError, TypeError, ValueError, BkstoreError) as error:
        if isinstance(error, CorruptionError) and error.file is not None:
            raise
        reason = f"no column {error}" if isinstance(error, KeyError) else str(error)
        message = f"row {number} is not one of an audit: {reason}"
        raise CorruptionError(path, None, message) from None
