"""One HTML file of a document: question, finding, picture, table, method, machine."""

from __future__ import annotations

from html import escape

from bkstore.report.html.rendering import policy, template_file
from tools.lab.document import Document
from tools.lab.experiment import Rows
from tools.lab.table import Columns, Parted, footer, shown, tables_of

_STYLE = """
main { padding: 16px 20px; }
.finding { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  border-left: 6px solid var(--live); padding: 10px 16px 10px 34px; font-size: 16px; }
figure { margin: 16px 0; padding: 8px; background: #ffffff; border: 1px solid var(--line);
  border-radius: 6px; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; background: var(--panel); }
th, td { padding: 3px 8px; border-bottom: 1px solid var(--line); text-align: right; }
th { vertical-align: bottom; } td.words, th.words { text-align: left; }
"""


def page(document: Document, svg: bytes, parted: Parted = lambda _: "") -> bytes:
    """Return the page; it loads nothing from elsewhere and has no script."""
    picture = svg.decode()
    picture = picture[picture.index("<svg") :]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(""))}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(document['experiment'])}: {escape(document['question'])}</title>",
        f"<style>{template_file('style.css')}{_STYLE}</style></head><body><main>",
        f"<h1>{escape(document['question'])}</h1>",
        '<ul class="finding">',
        *(f"<li>{escape(sentence)}</li>" for sentence in document["finding"]),
        "</ul>",
        f"<figure>{picture}</figure>",
        *(
            f'<div class="table">{_table(columns, rows)}</div>'
            for _, columns, rows in tables_of(document["columns"], document["rows"], parted)
        ),
        f'<p class="note">{escape(document["data"])}</p>',
        f'<p class="note">{escape(document["method"])}</p>',
        f'<p class="note">{escape(footer(document))}</p>',
        "</main></body></html>",
    ]
    return "\n".join(parts).encode()


def _table(columns: Columns, rows: Rows) -> str:
    words = {
        column["name"]: ' class="words"'
        for column in columns
        if any(isinstance(row[column["name"]], str) for row in rows)
    }
    heads = "".join(
        f"<th{words.get(column['name'], '')}>{escape(column['label'])}"
        f"{'<br>' if column['unit'] else ''}{escape(column['unit'])}</th>"
        for column in columns
    )
    lines = [
        "".join(
            f"<td{words.get(column['name'], '')}>{escape(shown(row[column['name']]))}</td>"
            for column in columns
        )
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
