"""A document as one HTML file: question, finding, picture, table, method, machine."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from bkstore.lab.documents.document import Document
from bkstore.lab.experiment import Experiment, Rows
from bkstore.lab.number_format import as_text
from bkstore.lab.presentation.table import Columns, describe_run, split_tables
from bkstore.lab.presentation.terminal_tables import Grid, panel_grid
from bkstore.report.html.rendering import content_security_policy, read_template_file

_STYLE = """
main { padding: 16px 20px; }
.finding { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  border-left: 6px solid var(--live); padding: 10px 16px 10px 34px; font-size: 16px; }
figure { margin: 16px 0; padding: 8px; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
figure .narrow { display: none; width: 100%; }
@media (max-width: 700px) { figure .wide { display: none; } figure .narrow { display: block; } }
.panels { display: flex; flex-wrap: wrap; gap: 16px; align-items: flex-start; }
.table { overflow-x: auto; max-width: 100%; }
caption { text-align: left; font-weight: 600; padding: 3px 8px; }
details { margin: 16px 0; }
table { border-collapse: collapse; font-size: 13px; background: var(--panel); }
th, td { padding: 3px 8px; border-bottom: 1px solid var(--line); text-align: right; }
th { vertical-align: bottom; } td.words, th.words { text-align: left; }
"""


def build_page(experiment: Experiment, document: Document, wide: bytes, narrow: bytes) -> bytes:
    """Return a result as an HTML page, which has no script and loads nothing from other files. It
    has two SVG pictures, `wide` and `narrow`; the style sheet shows the one that fits the screen.
    """
    pictures = _svg_element(wide, "wide") + _svg_element(narrow, "narrow")
    policy = escape(content_security_policy(""))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(document['experiment'])}: {escape(document['question'])}</title>",
        f"<style>{read_template_file('style.css')}{_STYLE}</style></head><body><main>",
        f"<h1>{escape(document['question'])}</h1>",
        '<ul class="finding">',
        *(f"<li>{escape(sentence)}</li>" for sentence in document["finding"]),
        "</ul>",
        f"<figure>{pictures}</figure>",
        *_html_tables(experiment, document),
        f'<p class="note">{escape(document["data"])}</p>',
        f'<p class="note">{escape(document["method"])}</p>',
        f'<p class="note">{escape(describe_run(document))}</p>',
        "</main></body></html>",
    ]
    return "\n".join(parts).encode()


def _svg_element(svg: bytes, css_class: str) -> str:
    """Return the element of an SVG document, of a class."""
    _, _, element = svg.decode().partition("<svg")
    return f'<svg class="{css_class}"{element}'


def _html_tables(experiment: Experiment, document: Document) -> Iterator[str]:
    """Yield the HTML of a result's tables: one for each panel, side by side, then, folded up, those
    with all columns of all rows. An experiment with `tables_by_row` has only the latter, open."""
    columns, rows = document["columns"], document["rows"]
    row_tables = [
        f'<div class="table">{_html_table(shown, table_rows)}</div>'
        for _, shown, table_rows in split_tables(columns, rows, experiment.table_title)
    ]
    if experiment.tables_by_row:
        yield from row_tables
        return
    yield '<div class="panels">'
    for panel in experiment.panels:
        if panel.rows(rows):
            yield f'<div class="table">{_grid_table(panel_grid(experiment, panel, rows))}</div>'
    yield "</div>"
    yield from ("<details><summary>All columns of all rows</summary>", *row_tables, "</details>")


def _grid_table(grid: Grid) -> str:
    """Return a grid as an HTML table."""
    attributes = [
        ' class="words"' if column in grid.left_aligned else ""
        for column in range(len(grid.headers))
    ]
    head = "".join(f"<th{a}>{escape(text)}</th>" for a, text in zip(attributes, grid.headers))
    body_rows = [
        "".join(f"<td{a}>{escape(text)}</td>" for a, text in zip(attributes, row))
        for row in grid.rows
    ]
    body = "".join(f"<tr>{cells}</tr>" for cells in body_rows)
    return (
        f"<table><caption>{escape(grid.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _html_table(columns: Columns, rows: Rows) -> str:
    """Return rows as an HTML table; columns with text are aligned to the left by a CSS class."""
    class_attribute = {
        column["name"]: ' class="words"'
        for column in columns
        if any(isinstance(row[column["name"]], str) for row in rows)
    }
    heads = "".join(
        f"<th{class_attribute.get(column['name'], '')}>{escape(column['label'])}"
        f"{'<br>' if column['unit'] else ''}{escape(column['unit'])}</th>"
        for column in columns
    )
    body_rows = [
        "".join(
            f"<td{class_attribute.get(name, '')}>{escape(as_text(row[name]))}</td>"
            for name in (column["name"] for column in columns)
        )
        for row in rows
    ]
    body = "".join(f"<tr>{cells}</tr>" for cells in body_rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
