"""A document in a terminal: a table for each panel of the picture, as wide as the terminal is."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from bkstore.cli.screen.column_choice import COLUMN_GAP, line_width
from bkstore.cli.screen.tables import ScreenStream
from bkstore.cli.screen.text_width import max_width, pad_cells, wrap_text
from bkstore.lab.documents.document import Document
from bkstore.lab.experiment import Experiment, Panel, Rows, merge_orders
from bkstore.lab.number_format import as_text
from bkstore.lab.presentation.table import Columns, describe_run, has_words, split_tables

_HEADER_WIDTH = 14
"""Headers of columns are wrapped to this width, unless the cells below are wider."""


class Grid(NamedTuple):
    """A table for a terminal. If its columns need several tables, its leading columns of texts are
    repeated in each. `left_aligned` has the numbers of the columns of texts."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_aligned: frozenset[int]

    def transpose(self) -> Grid:
        """Return the table with its rows as columns; only the first column has words then."""
        headers = [self.headers[0], *(row[0] for row in self.rows)]
        rows = list(zip(self.headers[1:], *(row[1:] for row in self.rows)))
        return Grid(self.title, headers, rows, frozenset({0}))


def print_document(experiment: Experiment, document: Document, *, wide: bool = False) -> None:
    """Print tables, then the findings, then how the document was made.

    There is a table for each panel, with all its figures. If `wide`, or if the experiment's tables
    are by row, all columns of all rows are printed, over several tables where the terminal is
    narrower. Elsewhere than on a terminal lines have 100 characters, without a limit if `wide`.
    """
    screen = ScreenStream(sys.stdout)
    columns, rows = document["columns"], document["rows"]
    unlimited = wide and not screen.is_terminal
    if wide or experiment.tables_by_row:
        for title, shown, table_rows in split_tables(columns, rows, experiment.table_title):
            _print_grid(
                screen,
                _row_grid(title or document["question"], shown, table_rows),
                unlimited=unlimited,
            )
    else:
        for panel in experiment.panels:
            if panel.rows(rows):
                _print_panel(screen, experiment, panel, rows)
        for row in rows:
            if row.get("error"):  # has no figures
                key = ", ".join(as_text(value) for value in experiment.key(row))
                _write_lines(screen, *wrap_text(f"{key}: {row['error']}", screen.width), "")
    for sentence in document["finding"]:
        first_line, *more_lines = wrap_text(sentence, screen.width - 2)
        _write_lines(screen, f"- {first_line}", *(f"  {line}" for line in more_lines))
    _write_lines(screen, "", *wrap_text(describe_run(document), screen.width))


def _write_lines(screen: ScreenStream, *lines: str) -> None:
    screen.stream.write("".join(f"{line}\n" for line in lines))


def _print_panel(screen: ScreenStream, experiment: Experiment, panel: Panel, rows: Rows) -> None:
    """Print the figures of a panel: its x values by its series, whichever way is narrower."""
    grid = panel_grid(experiment, panel, rows)
    transposed = grid.transpose()
    if len(_split_columns(grid, screen.width)) > len(_split_columns(transposed, screen.width)):
        grid = transposed
    _print_grid(screen, grid)


def panel_grid(experiment: Experiment, panel: Panel, rows: Rows) -> Grid:
    """Return the values of a panel as a table: a row for each x value, a column for each series. If
    the panel's picture has tick marks, their value follows in brackets."""
    y, title = experiment.column(panel.y), panel.title
    cell_of: dict[tuple[str, str], str] = {}
    for row in panel.rows(rows):
        series = y.label if panel.series_column is None else as_text(row[panel.series_column])
        tick = row[panel.tick_column] if panel.tick_column else None
        cell_of[as_text(row[panel.x]), series] = as_text(row[panel.y]) + (
            "" if tick is None else f" ({as_text(tick)})"
        )
    # A row for each x value, in an order that agrees with that of every series. A series may lack
    # some x values.
    series_texts = list(dict.fromkeys(series for _, series in cell_of))
    x_texts = merge_orders(
        [x for x, series_of_cell in cell_of if series_of_cell == series] for series in series_texts
    )
    cells = [[x, *(cell_of.get((x, series), "") for series in series_texts)] for x in x_texts]
    if panel.tick_column is not None:
        title = re.sub(r" \(tick: (.*)\)$", r" (\1 in brackets)", title)
    # The unit follows, unless the title names it.
    if not re.search(rf"\b{re.escape(y.unit)}\b", title, re.IGNORECASE):
        title = f"{title}, {y.unit}"
    has_text_x = any(isinstance(row[panel.x], str) for row in panel.rows(rows))
    headers = [panel.label or experiment.column(panel.x).title, *series_texts]
    return Grid(title, headers, cells, frozenset({0} if has_text_x else ()))


def _row_grid(title: str, columns: Columns, rows: Rows) -> Grid:
    headers = [", ".join(filter(None, (each["label"], each["unit"]))) for each in columns]
    cells = [[as_text(row[column["name"]]) for column in columns] for row in rows]
    left = frozenset(i for i, column in enumerate(columns) if has_words(column, rows))
    return Grid(title, headers, cells, left)


def _print_grid(screen: ScreenStream, grid: Grid, *, unlimited: bool = False) -> None:
    """Print a table and an empty line. A table that is wider than the screen is printed as several
    ones, each with some of the columns, unless `unlimited`."""
    screen.line(grid.title, "bold")
    for part in [_all(grid)] if unlimited else _split_columns(grid, screen.width):
        lines_of_columns = [_column_lines(grid, column) for column in part]
        height = max(len(header) for header, _ in lines_of_columns)
        padded = [
            pad_cells(
                [""] * (height - len(header)) + header + cells,
                max_width(header + cells),
                column not in grid.left_aligned,  # whether to align to the right
            )
            for column, (header, cells) in zip(part, lines_of_columns)
        ]
        lines = [COLUMN_GAP.join(cells).rstrip() for cells in zip(*padded)]
        _write_lines(screen, *lines[:height])
        screen.line(screen.rule * max_width(lines), "dim")
        _write_lines(screen, *lines[height:], "")


def _column_lines(grid: Grid, column: int) -> tuple[list[str], list[str]]:
    """Return the lines of a column's header, and its cells."""
    cells = [row[column] for row in grid.rows]
    return wrap_text(grid.headers[column], max(max_width(cells), _HEADER_WIDTH)), cells


def _split_columns(grid: Grid, room: int) -> list[list[int]]:
    """Return the column numbers of each of the tables that a grid is split into, so that each is at
    most `room` characters wide. The leading columns of text identify a row, so each table begins
    with them; without such columns the first one takes their place."""
    columns = [header + cells for header, cells in map(partial(_column_lines, grid), _all(grid))]
    widths = list(map(max_width, columns))
    leading = [column for column in _all(grid) if grid.left_aligned >= set(range(column + 1))] or [
        0
    ]
    parts = [list(leading)]
    for column in _all(grid)[len(leading) :]:
        is_full = line_width(widths[shown] for shown in (*parts[-1], column)) > room
        if is_full and len(parts[-1]) > len(leading):
            parts.append(list(leading))
        parts[-1].append(column)
    return parts


def _all(grid: Grid) -> range:
    """Return the indexes of all columns."""
    return range(len(grid.headers))
