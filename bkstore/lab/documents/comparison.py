"""Differences between two documents of one experiment: settings, counts, figures that moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bkstore.lab.documents.document import Document
from bkstore.lab.experiment import Experiment, Row, columns_of_kind
from bkstore.lab.number_format import as_text

_MIN_RATIO = 1.25
"""The ratio, upwards or downwards, from which on a measured figure is reported as changed."""

_SETTING_KEYS = ("seed", "scale", "rounds", "data", "dump", "trace", "python", "absent")
_MACHINE_KEYS = ("system", "architecture", "processor", "cores", "memory_bytes")


def list_differences(experiment: Experiment, new: Document, old: Document) -> list[str]:
    """Return a line for each differing setting, unmatched row and changed value."""
    before, after = _settings_of(old), _settings_of(new)
    lines = [
        f"{key}: {_setting_text(before.get(key))} then, {_setting_text(after.get(key))} now"
        for key in before | after
        if before.get(key) != after.get(key)
    ]
    return lines + _list_row_differences(experiment, new, old)


def _settings_of(document: Document) -> dict[str, Any]:
    """Return all that can explain a difference: options, data, machine and package versions."""
    return {
        **{key: document.get(key) for key in _SETTING_KEYS},
        **{key: document["machine"].get(key) for key in _MACHINE_KEYS},
        **document["packages"],
    }


def _setting_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)


def _list_row_differences(experiment: Experiment, new: Document, old: Document) -> list[str]:
    """Return a line for each row that only one document has, and for each changed value."""
    old_rows = {experiment.key(row): row for row in old["rows"]}
    new_rows = {experiment.key(row): row for row in new["rows"]}
    lines = [f"{_format_key(key)}: only then" for key in old_rows if key not in new_rows]
    lines += [f"{_format_key(key)}: only now" for key in new_rows if key not in old_rows]
    for key in new_rows:
        if key in old_rows:
            changes = _changed_values(experiment, old_rows[key], new_rows[key])
            lines += [f"{_format_key(key)}: {line}" for line in changes]
    return lines


def _format_key(key: tuple[Any, ...]) -> str:
    return ", ".join(filter(None, map(as_text, key)))  # a column may have no value in this row


def _changed_values(experiment: Experiment, old: Row, new: Row) -> Iterator[str]:
    """Yield the counts that differ, and the measured values that moved by `_MIN_RATIO` or more:
    counts are the same in each run, measured values never quite."""
    for column in columns_of_kind(experiment.columns, "count", "measured"):
        then, now = old.get(column.name), new[column.name]
        if then == now:
            continue
        change = f"{column.title} {as_text(then) or 'absent'} then, {as_text(now) or 'absent'} now"
        if column.kind == "count" or not _is_positive_number(then) or not _is_positive_number(now):
            yield change
        elif max(now / then, then / now) >= _MIN_RATIO:
            yield f"{change}: {now / then:.2f}x"


def _is_positive_number(value: Any) -> bool:
    """Return whether a ratio can be computed with the value."""
    return isinstance(value, int | float) and value > 0
