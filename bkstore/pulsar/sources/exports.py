"""Pulsar's nodes as part of a metadata file, the JSON document of `bkstore metadata export`.

Key ``pulsar``: an object with ``read_at`` (milliseconds), ``is_complete``, and ``nodes``, each with
its ``path``, its value as ``value_hex`` (or a ``problem``), ``version`` and ``modified``. Page:
`docs/formats/pulsar.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from bkstore.errors import CorruptionError
from bkstore.formats.syntax.json_text import parse_json_rows
from bkstore.pulsar.sources.node_paths import chunks, is_topic, list_nodes
from bkstore.pulsar.sources.nodes import (
    MANAGED_LEDGERS,
    SCHEMAS,
    MemoryNodes,
    NodeValue,
    PulsarNodes,
)

_NODES_AT_ONCE = 1000


def read_all_nodes(nodes: PulsarNodes) -> Iterator[tuple[str, NodeValue | CorruptionError]]:
    """Yield all nodes that may refer to ledgers, and the roots of their trees, by path: also those
    that are no topic's, as a ledger may name them. Folders of a copy without a value of their own
    are left out."""
    for tree in (MANAGED_LEDGERS, SCHEMAS):
        paths = list_nodes(nodes, tree)
        if paths is None:
            continue
        yield tree, NodeValue(b"")
        folders = {path.rpartition("/")[0] for path in paths}
        for part in chunks(paths, _NODES_AT_ONCE):
            for path, value in zip(part, nodes.read_many(part)):
                is_folder = path in folders and not is_topic(path)
                if value is not None and not (is_folder and isinstance(value, CorruptionError)):
                    yield path, value


def encode_nodes(
    values: Iterable[tuple[str, NodeValue | CorruptionError]], read_at: int, is_complete: bool
) -> str:
    """Return the JSON of the key ``pulsar``, a line for each node."""
    rows = ",\n".join(json.dumps(_node_fields(path, value)) for path, value in values)
    head = {"read_at": read_at, "is_complete": is_complete}
    return f'{json.dumps(head)[:-1]}, "nodes": [\n{rows}\n]}}'


def _node_fields(path: str, value: NodeValue | CorruptionError) -> dict[str, Any]:
    """Return a node as the fields of its JSON object."""
    if isinstance(value, CorruptionError):
        return {"path": path, "problem": str(value)}
    return {
        "path": path,
        "value_hex": value.data.hex(),
        "version": value.version,
        "modified": value.modified,
    }


def decode_nodes(data: bytes | str, file: str = "") -> MemoryNodes | None:
    """Return the nodes in a metadata file, None if it has none. Raises `CorruptionError` for
    another form, with the path of the value at fault (such as ``pulsar.nodes[3].value_hex``)."""
    ignored = {"ledgers": lambda *_: None}  # the ledgers, most of the file: not parsed
    document = parse_json_rows(data, ignored, subject="metadata file")
    part = document.get("pulsar") if isinstance(document, dict) else None
    if part is None:
        return None
    values: dict[str, NodeValue | CorruptionError] = {}
    rows = _typed(_typed(part, "pulsar", dict).get("nodes"), "pulsar.nodes", list)
    for index, row in enumerate(rows):
        json_path = f"pulsar.nodes[{index}]"
        path, value = _decode_node(_typed(row, json_path, dict), json_path)
        if path in values:
            raise CorruptionError(None, None, f"{json_path}: {path} is there twice")
        values[path] = value
    read_at = _typed(part.get("read_at"), "pulsar.read_at", int)
    is_complete = _typed(part.get("is_complete"), "pulsar.is_complete", bool)
    return MemoryNodes(values, file, read_at=read_at, is_complete=is_complete)


def _decode_node(row: dict[str, Any], json_path: str) -> tuple[str, NodeValue | CorruptionError]:
    """Return the path and value of a node in an exported file, or why the export lacks it."""
    path = _typed(row.get("path"), f"{json_path}.path", str)
    if not path.startswith("/"):
        raise CorruptionError(None, None, f"{json_path}.path is not a path")
    if "problem" in row:
        problem = _typed(row["problem"], f"{json_path}.problem", str)
        return path, CorruptionError(None, None, problem)
    value_hex = _typed(row.get("value_hex"), f"{json_path}.value_hex", str)
    try:
        value = bytes.fromhex(value_hex)
    except ValueError:
        reason = f"{json_path}.value_hex is not hexadecimal"
        raise CorruptionError(None, None, reason) from None
    version = _typed(row.get("version", -1), f"{json_path}.version", int)
    return path, NodeValue(value, version, _typed(row.get("modified", -1), json_path, int))


def _typed(value: Any, json_path: str, kind: type[Any]) -> Any:
    """Return a JSON value of the kind; raises `CorruptionError` for another."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise CorruptionError(None, None, f"{json_path} is not of type {kind.__name__}")
    return value
