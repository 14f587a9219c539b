"""The reviewed list of `bkstore metadata delete`: a file of `bkstore leaks`, or a part of it."""

from __future__ import annotations

import csv
import io
import json
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
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptionError(None, error.start, "is not UTF-8") from None
        reader = csv.DictReader(io.StringIO(text, newline=""))
        for row in reader:
            yield f"line {reader.line_num}", row
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


def _as_object(row: Any, row_label: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise CorruptionError(None, None, f"{row_label} is not an object: {json.dumps(row)[:40]}")
    return row


def _parse_row(row: dict[str, Any], row_label: str) -> ListedLeak:
    """Return the ledger of a row; `row_label` names the row in errors."""
    for column in _NEEDED:
        if column not in row:
            raise CorruptionError(None, None, f"{row_label} has no column {column}")
    version = row["version"]
    try:
        ledger = LedgerId(int(row["scope_id"]), int(row["ledger_id"]))
        number = None if version in (None, "") else int(version)
    except (TypeError, ValueError, InvalidArgument) as error:
        raise CorruptionError(None, None, f"{row_label}: {error}") from None
    return ListedLeak(ledger, str(row["class"]), number)
