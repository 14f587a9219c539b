"""Incremental dumps: the files of an earlier dump, where what they were made from has not changed.

Each dump has a file `sources.json`: for each piece a digest of the names, sizes and modification
times of all files that its rows come from, relative to the bookie's directories, so that a copy
elsewhere counts as the same. Pieces with findings, and those of directories that were read live,
have no digest: they are always read again. Format: `docs/formats/dump.md`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.copies import copy_file, link_file
from bkstore.files.disk_changes import Files
from bkstore.files.opening import read_file
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.ids import LedgerId
from bkstore.offline.dump.dump_piece import PieceResult, WrittenFile
from bkstore.offline.dump.file_names import dump_file_path
from bkstore.offline.dump.partial_dump import is_unchanged
from bkstore.offline.dump.plan import DumpPiece, list_database_files, stat_files
from bkstore.offline.reading.ledger_ranges import LedgerRange
from bkstore.offline.reading.manifest import read_manifest

SOURCES = "sources.json"

_KIND = "bkstore dump sources"
_FORMAT = 1
_MAX_BYTES = 1 << 30  # a piece takes some 500
_INFO_FILES = ("LOG", "LOCK")
"""Beginnings of names of RocksDB's files that have no data: its info logs, and its lock."""


def source_digest(piece: DumpPiece, log_ids: Sequence[Sequence[int]]) -> str:
    """Return a digest of all that the piece's rows depend on; `log_ids` are the inclusive ranges of
    the entry logs that its locations name.

    Cost: a `stat` a file. Raises `ReadFailed` if the system refuses one.
    """
    # The rows of a piece of logs come from all of its logs, lengths from those that locations name.
    named_logs = [log for log in piece.logs if _is_in(log.log_id, log_ids)]
    read_logs = piece.logs if piece.kind == "logs" else named_logs if piece.with_lengths else ()
    content = (
        _FORMAT,
        piece.bookie_id,
        piece.kind,
        piece.record_columns,
        piece.layout,
        piece.dir_index,
        piece.directory_count,
        piece.first_ledger,
        piece.stop_ledger,
        [ledger for ledger, _ in piece.files],
        # With index files, `dir_index` of a row is the directory that has its log.
        [(log.log_id, log.dir_index) for log in named_logs] if piece.layout == "idx" else [],
        [(log.dir_index, os.path.basename(log.path)) for log in read_logs],
        # Size and modification time, without the path, which differs in a copy.
        [stat[1:] for stat in stat_files([log.path for log in read_logs])],
        list(_stat_index_files(piece)),
    )
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _is_in(number: int, ranges: Iterable[Sequence[int]]) -> bool:
    return any(first <= number <= last for first, last in ranges)


def _stat_index_files(piece: DumpPiece) -> Iterator[tuple[int, str, int, int]]:
    """Yield (number of the index directory, relative path, size, mtime) of each file with rows."""
    paths = [path for _, path in piece.files]
    if piece.layout == "rocksdb":
        files = list_database_files(piece.index_dirs[0])
        paths = [path for path in files if not os.path.basename(path).startswith(_INFO_FILES)]
    prefixes = [f"{os.fspath(directory)}{os.sep}" for directory in piece.index_dirs]
    for path, size, modified in stat_files(paths):
        number = next(n for n, prefix in enumerate(prefixes) if path.startswith(prefix))
        yield number, path[len(prefixes[number]) :], size, modified


# -- the file of a dump


def encode_sources(pieces: Iterable[tuple[DumpPiece, PieceResult]]) -> bytes:
    """Return the bytes of `sources.json` for the pieces of a dump and their results."""
    objects = [
        {
            "bookie": piece.bookie_id,
            "kind": piece.kind,
            "dir_index": piece.dir_index,
            "first_ledger": piece.first_ledger.qualified_name,
            "log_ids": result.log_ids,
            "digest": None if result.findings else result.source_digest,
            "files": {
                file.table: dump_file_path(file.table, piece.bookie_id, piece.number)
                for file in result.files
            },
        }
        for piece, result in pieces
    ]
    document = {"kind": _KIND, "format": _FORMAT, "pieces": objects}
    return (format_json(document, indent=1) + "\n").encode()


class KeptPiece(NamedTuple):
    """A piece of the earlier dump that is still right: its result, and the paths of its files."""

    result: PieceResult
    paths: list[Path]

    def place_files(self, folder: Path, files: Files) -> None:
        """Give its files their names in `folder`: as hard links, or as durable copies where the
        system cannot link. Raises `WriteFailed`."""
        for path, file in zip(self.paths, self.result.files):
            if not link_file(path, folder / file.name, files):
                copy_file(path, folder / file.name, files)


class EarlierDump:
    """A finished dump on a local file system, whose files can be used again.

    Raises `InvalidArgument` if there is no dump, or one without `sources.json`, `CorruptionError`
    for files of it that cannot be parsed. Memory: some 1 KB a piece.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        manifest = read_manifest(path)
        records = self._read_records()
        self._index_pieces: dict[str, dict[_CutIndex, _EarlierPiece]] = {}  # by bookie
        self._log_pieces: dict[str, _EarlierPiece] = {}  # by digest
        try:
            # The manifest's objects of files, by path.
            tables = manifest["tables"].values()
            objects = {file["path"]: file for table in tables for file in table["files"]}
            for record in records:
                self._add_piece(record, objects)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"does not fit the manifest: {error!r:.80}"
            raise CorruptionError(str(self._path / SOURCES), None, reason) from None

    def _add_piece(self, record: Any, objects: Mapping[str, Any]) -> None:
        """Keep a piece of the earlier dump: one of logs by its digest, one of an index by bookie,
        directory and first ledger: `find_piece` needs its `log_ids` to compute a digest to compare.
        """
        files = {table: objects[path] for table, path in record["files"].items()}
        piece = _EarlierPiece(record["digest"], record["log_ids"], files)
        if record["kind"] == "logs" and piece.digest is not None:
            self._log_pieces[piece.digest] = piece
        elif record["kind"] == "index":
            cut = record["dir_index"], LedgerId.parse(record["first_ledger"])
            self._index_pieces.setdefault(record["bookie"], {})[cut] = piece

    def _read_records(self) -> Any:
        """Return the records of the earlier dump's pieces; raises if it has none in this format."""
        path = self._path / SOURCES
        try:
            document = parse_json(read_file(path, _MAX_BYTES, text=True), str(path))
        except FileNotFoundError:
            raise InvalidArgument(
                f"{self._path}: has no {SOURCES}: an earlier version made it; dump in full once"
            ) from None
        if not isinstance(document, dict) or document.get("kind") != _KIND:
            raise InvalidArgument(f"{path}: not the sources of a dump")
        if document.get("format") != _FORMAT:
            raise UnsupportedLayout(
                f"{path}: format {document.get('format')}, supported: {_FORMAT}"
            )
        return document.get("pieces")

    def first_ledgers(self, bookie_id: str) -> dict[int, list[LedgerId]]:
        """Return the ledgers at which the bookie's index was cut, ascending, by directory."""
        cuts: dict[int, list[LedgerId]] = {}
        for dir_index, first_ledger in sorted(self._index_pieces.get(bookie_id, {})):
            cuts.setdefault(dir_index, []).append(first_ledger)
        return cuts

    def find_piece(self, piece: DumpPiece) -> KeptPiece | None:
        """Return the same piece of the earlier dump; None if anything that it was made from has
        changed, if it is read live, or if its files are not as the manifest says."""
        if piece.live:
            return None
        # A piece is unchanged if its digest is. That of an index piece depends on the logs that its
        # rows name, which are known from the earlier dump.
        if piece.kind == "logs":
            kept = self._log_pieces.get(source_digest(piece, []))
        else:
            pieces = self._index_pieces.get(piece.bookie_id, {})
            kept = pieces.get((piece.dir_index, piece.first_ledger))
            if kept is not None and kept.digest != source_digest(piece, kept.log_ids):
                return None
        if kept is None:
            return None
        files = [_written_file(piece, table, kept.files[table]) for table in kept.files]
        paths = [self._path / kept.files[table]["path"] for table in kept.files]
        if not all(map(is_unchanged, paths, files)):
            return None
        return KeptPiece(PieceResult(files, [], kept.log_ids, kept.digest), paths)


_CutIndex = tuple[int, LedgerId]  # the number of a directory, and the first ledger of a piece


class _EarlierPiece(NamedTuple):
    """A record of `sources.json`, with the manifest's objects of the files by their tables."""

    digest: str | None
    log_ids: list[list[int]]
    files: Mapping[str, Mapping[str, Any]]


def _written_file(piece: DumpPiece, table: str, file_object: Mapping[str, Any]) -> WrittenFile:
    ledgers = LedgerRange.from_json(file_object, table)
    rows, size = file_object["rows"], file_object["bytes"]
    return WrittenFile(table, f"{piece.name}.{table}", rows, size, ledgers)
