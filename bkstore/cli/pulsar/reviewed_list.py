"""The reviewed list of `bkstore metadata delete`: a file of `bkstore leaks`, or a part of it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.syntax.json_text import parse_json
from bkstore.ids import LedgerId
from bkstore.pulsar.deletion import ListedLeak

_MAX_FILE_BYTES = 1 << 30
_INTEGER = re.compile(r" *-?[0-9]{1,40} *")
_NEEDED = ("class", "scope_id", "ledger_id", "version")


def read_leak_list(file: Path) -> list[ListedLeak]:
    """Return the ledgers of a .csv, .json or .jsonl file. Raises
    `InvalidArgument` for another suffix, `CorruptionError` for a file without the columns `class`,
    `scope_id`, `ledger_id` and `version`, or with other values in them."""
    with convert_read_errors(file):
        data = read_file(file, _MAX_FILE_BYTES, text=True)
    try:
        return [_parse_row(row, row_label) for row_label, row in _rows(data, file.suffix)]
    except CorruptionError as error:
        raise error.relocate(file) from None


def _rows(data: bytes, suffix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (where a row is, row)."""
    if suffix == ".csv":
        yield from _csv_rows(data)
    elif suffix == ".jsonl":
        for number, line in enumerate(data.splitlines(), 1):
            yield f"line {number}", _as_object(parse_json(line), f"line {number}")
    elif suffix == ".json":
        document = parse_json(data)
        if not isinstance(document, list):
            raise CorruptionError(None, None, "is not a list of ledgers")
        for number, row in enumerate(document):
            yield f"[{number}]", _as_object(row, f"[{number}]")
    else:
        raise InvalidArgument(f"the list is not a .csv, .json or .jsonl file: {suffix!r}")


def _csv_rows(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (where a row is, row); a byte order mark, as spreadsheets write it, is skipped."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorruptionError(None, error.start, "is not UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        for column in _NEEDED:
            if (reader.fieldnames or []).count(column) > 1:
                raise CorruptionError(None, None, f"line 1 has more than one column {column}")
        for row in reader:
            row_label = f"line {reader.line_num}"
            if None in row:  # the key of values beyond the columns
                raise CorruptionError(None, None, f"{row_label} has more values than line 1")
            yield row_label, row
    except csv.Error as error:
        raise CorruptionError(None, None, f"line {reader.line_num + 1}: {error}") from None


def _as_object(row: Any, row_label: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise CorruptionError(None, None, f"{row_label} is not an object: {json.dumps(row)[:40]}")
    return row


def _parse_row(row: dict[str, Any], row_label: str) -> ListedLeak:
    """Return the ledger of a row; `row_label` names the row in errors."""
    for column in _NEEDED:
        if column not in row:
            raise CorruptionError(None, None, f"{row_label} has no column {column}")
    is_stated = row["version"] not in (None, "")
    version = _integer(row, "version", row_label) if is_stated else None
    try:
        ledger = LedgerId(*(_integer(row, each, row_label) for each in ("scope_id", "ledger_id")))
    except InvalidArgument as error:
        raise CorruptionError(None, None, f"{row_label}: {error}") from None
    return ListedLeak(ledger, str(row["class"]), version)


def _integer(row: dict[str, Any], column: str, row_label: str) -> int:
    """Return an integer of a row, or one in a text; nothing is rounded to one, as it may name
    another ledger."""
    value = row[column]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or _INTEGER.fullmatch(value) is None:
        raise CorruptionError(None, None, f"{row_label}: {column} is not an integer: {value!r:.40}")
    return int(value)
