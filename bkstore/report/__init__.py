"""One self-contained HTML page from the tables of a dump's analyses.

`page` assembles the page: read it first. `tiles` are its first screen, `sections` describe
each table, `sentences` chooses the sentences that apply, `page_tables` and `charts` show the data;
`findings` summarize the tables. Templates, the style sheet and the script are files in the folder
``template``, which `html` fills. `docs/report.md` explains the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bkstore.files.user_outputs import write_output
from bkstore.report.charts import require_matplotlib
from bkstore.report.findings.table_columns import Tables
from bkstore.report.html.rendering import require_jinja
from bkstore.report.page import describe_headline, render_page
from bkstore.tables import require_pyarrow

__all__ = ["describe_headline", "write_report"]


def write_report(target: Path, tables: Tables, *, title: str, source: Mapping[str, Any]) -> None:
    """Write the page about `tables` to `target` atomically: a failure keeps the old file.

    `tables` has tables by the names of their schemas: those of `bkstore.tables.analyses`, and
    `findings` of the dump; absent ones appear as not asked for. `source` may have `manifest` (the
    dump's, a dict), `metadata` (where the ledger metadata came from, None if none were given),
    `other` (the manifest of the dump that `comparison` compares with), `engine` and `made_at`
    (texts for the foot of the page), `all_rows` (where all rows of a table are, by table name),
    `owners` (a `LedgerOwners`: the topics of ledgers, which the page then names beside them), and
    `directories` (true if the dump was made for this page alone: the page then names directories,
    not a dump).

    The page refers to nothing outside it. The same arguments give the same bytes. Cost: some passes
    over the number columns of each table, and a sort for the rows that are shown. Raises
    `MissingDependency` without matplotlib, Jinja2 or pyarrow, `WriteFailed` if writing fails.

    >>> import tempfile
    >>> from bkstore.tables import BOOKIE_BYTES, Table
    >>> row = ("b1", 1, 3, 1, 2048, 900, 900, 0, 0)
    >>> sizes = Table.from_rows(BOOKIE_BYTES, [row]).to_arrow()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "out.html")
    ...     write_report(target, {"bytes_by_bookie": sizes}, title="Copies", source={})
    ...     "Not judged" in target.read_text(encoding="utf-8")
    True
    """
    require_pyarrow("A report")
    require_matplotlib()
    require_jinja()
    write_output(target, render_page(tables, title, source).encode())
