"""bkstore sql: SQL over a dump: its tables, and its analyses as tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bkstore.cli.datasets.dump_location import DUMP_HELP, parse_dump_location
from bkstore.cli.pulsar.location_options import PULSAR_COPY_HELP, open_pulsar_copy, parse_pulsar
from bkstore.cli.screen.column_choice import RequestedColumns
from bkstore.cli.terminal.metadata_options import (
    METADATA_HELP,
    parse_metadata_location,
)
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import add_output, output_format_from_args
from bkstore.cli.terminal.table_output import write_tables
from bkstore.errors import InvalidArgument
from bkstore.tables.table import Column, ColumnKind, Schema, ScreenColumns, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from bkstore.cli.terminal.parser import Parser

_BATCH_ROWS = 4096
_VIEWS = Schema(
    "views",
    (Column("table", "string"), Column("columns", "string")),
    ScreenColumns(("table", "columns"), wrap="columns"),
)
_LIST_VIEWS = """
select if(view_.schema_name = 'main', '', view_.schema_name || '.') || view_name as "table",
    string_agg(column_name, ', ' order by column_index) as columns
from duckdb_views() view_, duckdb_columns() column_
where column_.table_oid = view_.view_oid and not view_.internal and not view_.temporary
group by view_.view_oid, view_.schema_name, view_name order by view_.view_oid
"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.intermixed = True
    parser.add_argument("dump", metavar="DUMP", type=parse_dump_location, help=DUMP_HELP)
    parser.add_argument(
        "query",
        metavar="QUERY",
        nargs="?",
        help="SQL for DuckDB, - to read it from stdin (default: list the tables)",
    )
    parser.add_argument(
        "--metadata",
        metavar="METADATA",
        type=parse_metadata_location,
        help=f"ledger metadata, for the analyses that compare with them: {METADATA_HELP}",
    )
    parser.add_argument("--pulsar", metavar="LOCATION", type=parse_pulsar, help=PULSAR_COPY_HELP)
    parser.add_argument(
        "--attach",
        metavar="NAME=DUMP",
        action="append",
        default=[],
        type=_check_attachment,
        help="another dump, whose tables are NAME.entries and so on; may be repeated",
    )
    add_output(parser, None)


def _check_attachment(text: str) -> str:
    """Return the text if it is NAME=DUMP, for use as argparse's `type`."""
    schema, _, location = text.partition("=")
    if not (schema and location):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DUMP")
    parse_dump_location(location)
    return text


def _attached_dumps(texts: list[str]) -> dict[str, Any]:
    """Return the location of each attached dump by its name, a schema of DuckDB."""
    attached: dict[str, Any] = {}
    for text in texts:
        schema, _, location = text.partition("=")
        if schema in attached:
            raise InvalidArgument(f"--attach: two dumps have the name {schema!r}")
        attached[schema] = parse_dump_location(location)
    return attached


def run(args: argparse.Namespace) -> int:
    """Print the rows of the query's last statement, or the tables that there are."""
    form = output_format_from_args(args)
    require_packages("sql", "duckdb", "pyarrow")
    import duckdb

    from bkstore.offline.analyses.sql_connection import SqlSession

    query = sys.stdin.read() if args.query == "-" else args.query
    attached = _attached_dumps(args.attach)
    pulsar = None if args.pulsar is None else open_pulsar_copy(args.pulsar)
    session = SqlSession.open(args.dump, args.metadata, attach=attached, pulsar=pulsar)
    with session.connection:
        try:
            text = _LIST_VIEWS if query is None else query
            relation: duckdb.DuckDBPyRelation | None = session.connection.sql(text)
            if relation is None:  # a statement without rows
                return 0
            reader = relation.to_arrow_reader(_BATCH_ROWS)
            schema = _VIEWS if query is None else _result_schema(reader.schema)
            requested = RequestedColumns(args.columns, args.wide)
            batches = _result_tables(schema, reader)
            write_tables(schema, batches, form, args.output, requested=requested)
        except duckdb.Error as error:
            raise session.explain(error) from error
    return 0


def _result_schema(arrow_schema: pa.Schema) -> Schema:
    """Return the schema of a result; a repeated name gets a number: ``n``, ``n_2``."""
    columns: dict[str, Column] = {}
    for field in arrow_schema:
        label, number = field.name, 2
        while label in columns:
            label, number = f"{field.name}_{number}", number + 1
        columns[label] = Column(label, _column_kind(field.type), nullable=True)
    text_columns = tuple(c.name for c in columns.values() if c.kind in ("string", "binary"))
    is_record = any(column.kind == "rows" for column in columns.values())
    screen = ScreenColumns(
        tuple(columns), may_cut=text_columns, as_records=is_record, keep_idle=True
    )
    return Schema("query", tuple(columns.values()), screen)


def _column_kind(arrow_type: pa.DataType) -> ColumnKind:
    """Return the kind of column for values of an Arrow type; what has none becomes text."""
    from pyarrow import types

    if types.is_boolean(arrow_type):
        return "bool"
    if types.is_integer(arrow_type) or (types.is_decimal(arrow_type) and not arrow_type.scale):
        return "int64"
    if types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "float64"
    if types.is_binary(arrow_type) or types.is_large_binary(arrow_type):
        return "binary"
    is_rows = types.is_list(arrow_type) and types.is_list(arrow_type.value_type)
    return "rows" if is_rows and types.is_int64(arrow_type.value_type.value_type) else "string"


def _result_tables(schema: Schema, reader: pa.RecordBatchReader) -> Iterator[Table]:
    """Yield the result's batches as tables, with values as the schema's types have them."""
    for batch in reader:
        converters = [_CONVERTERS.get(column.kind) for column in schema.columns]
        columns = [column.to_pylist() for column in batch.columns]
        converted = [
            values if convert is None else list(map(convert, values))
            for convert, values in zip(converters, columns)
        ]
        yield Table(schema, dict(zip(schema.names, converted)))


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _as_int(value: Any) -> int | None:
    return int(value) if isinstance(value, Decimal) else value


def _as_float(value: Any) -> float | None:
    return float(value) if isinstance(value, Decimal) else value


_CONVERTERS = {"string": _as_text, "int64": _as_int, "float64": _as_float}
