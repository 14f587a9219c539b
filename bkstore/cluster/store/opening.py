"""Open metadata by service URI, or by the path of a file or directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from bkstore.cluster.store.api import MetadataStore
from bkstore.cluster.store.directory_values import is_store
from bkstore.cluster.store.dump_store import DumpStore, make_memory_store
from bkstore.cluster.store.key_value_store import DirectoryStore
from bkstore.cluster.store.zookeeper.service_uri import is_service_uri, parse_service_uri
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.opening import read_text_file
from bkstore.files.os_errors import convert_read_errors
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.metadata.json_file import decode_file

_MAX_FILE_BYTES = 4 << 30  # some 400 bytes a ledger
_FILE_URI = re.compile(r"file:(?://(?:localhost)?(?=/))?(?!//)(.+)", re.DOTALL)


def parse_metadata_location(location: str | os.PathLike[str]) -> str | Path:
    """Return a service URI unchanged, anything else as a path, without a ``file:`` prefix; raises
    as `parse_service_uri` for another string with ``://``.

    >>> parse_metadata_location("zk://localhost:2181/ledgers")
    'zk://localhost:2181/ledgers'
    >>> parse_metadata_location("file:/a").as_posix()
    '/a'
    """
    if not isinstance(location, str):
        return Path(location)
    file_uri_match = _FILE_URI.fullmatch(location)
    if file_uri_match:
        return Path(unquote(file_uri_match[1]))
    if is_service_uri(location):
        parse_service_uri(location)  # for its errors
        return location
    return Path(location)


def open_metadata(location: str | os.PathLike[str]) -> MetadataStore:
    """Open the metadata at a service URI, or at the path of a file or directory, for reading.

    A path may be of a JSON file, which is read whole into a `MemoryStore`, a store's directory or a
    dumped folder. A `ZooKeeperStore` holds a connection and must be closed; opening it writes no
    LAYOUT. Raises `CorruptionError` if a file is not a metadata file, `BkstoreError` if it cannot
    be read, and the errors of `DirectoryStore`, `DumpStore` and `ZooKeeperStore`.
    """
    path = parse_metadata_location(location)
    if isinstance(path, str):  # a service URI
        return _open_zookeeper(path, make_layout=False)
    if os.path.isdir(path):
        return DirectoryStore(path, read_only=True) if is_store(path) else DumpStore(path)
    try:
        return make_memory_store(decode_file(_read_metadata_file(path)))
    except CorruptionError as error:
        raise error.relocate(path) from None
    except InvalidArgument as error:  # a number or name that no store can hold
        raise CorruptionError(path, None, str(error)) from error


def _read_metadata_file(path: Path) -> str | bytes:
    with convert_read_errors(path):
        return read_text_file(path, _MAX_FILE_BYTES)


def open_store(location: str | os.PathLike[str]) -> MetadataStore:
    """Open a writable store at a service URI or in a directory, which is created if necessary.
    Raises as `ZooKeeperStore` and `DirectoryStore`, and `InvalidArgument` for a file."""
    path = parse_metadata_location(location)
    if isinstance(path, str):  # a service URI
        return _open_zookeeper(path, make_layout=True)
    if path.is_file():
        raise InvalidArgument(f"{path} is a file; a store is a directory or a service URI")
    return DirectoryStore(path)


def _open_zookeeper(uri: str, *, make_layout: bool) -> MetadataStore:
    from bkstore.cluster.store.zookeeper.store import ZooKeeperStore

    return ZooKeeperStore(uri, make_layout=make_layout)


@contextmanager
def opened_metadata(location: str | os.PathLike[str]) -> Iterator[MetadataStore]:
    """Yield the store that `open_metadata` opens; close it afterwards if it needs that."""
    with _closing_store(open_metadata(location)) as store:
        yield store


@contextmanager
def opened_store(location: str | os.PathLike[str]) -> Iterator[MetadataStore]:
    """Yield the store that `open_store` opens; close it afterwards if it needs that."""
    with _closing_store(open_store(location)) as store:
        yield store


@contextmanager
def _closing_store(store: MetadataStore) -> Iterator[MetadataStore]:
    try:
        yield store
    finally:
        close = getattr(store, "close", None)
        if close is not None:
            close()


def refuse_metadata(target: str | os.PathLike[str], location: str | os.PathLike[str]) -> None:
    """Raise `InvalidArgument` if `target` is, or is inside, the metadata's file or directory."""
    path = parse_metadata_location(location)
    if isinstance(path, Path):
        refuse_inputs(target, [path])
