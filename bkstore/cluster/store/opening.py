"""Opening metadata wherever they are: by service URI, or by the path of a file or directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from bkstore.cluster.store.api import MetadataStore
from bkstore.cluster.store.directory_values import is_store
from bkstore.cluster.store.dump_store import DumpStore, store_of
from bkstore.cluster.store.key_value_store import DirectoryStore
from bkstore.cluster.store.zookeeper.service_uri import is_service_uri, parse_service_uri
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.opening import read_whole
from bkstore.files.os_errors import readable
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.metadata.json_file import decode_file

_FILE_LIMIT = 4 << 30  # some 400 bytes a ledger
_FILE_URI = re.compile(r"file:(?://(?:localhost)?(?=/))?(?!//)(.+)", re.DOTALL)


def metadata_place(text: str | os.PathLike[str]) -> str | Path:
    """Return a service URI as it is, anything else as a path; ``file:`` is taken off.

    Raises as `parse_service_uri` for words with ``://`` that are no service URI of ZooKeeper.

    >>> metadata_place("zk://localhost:2181/ledgers"), metadata_place("file:/a").as_posix()
    ('zk://localhost:2181/ledgers', '/a')
    """
    if not isinstance(text, str):
        return Path(text)
    found = _FILE_URI.fullmatch(text)
    if found:
        return Path(unquote(found[1]))
    if is_service_uri(text):
        parse_service_uri(text)
        return text
    return Path(text)


def open_metadata(place: str | os.PathLike[str]) -> MetadataStore:
    """Return the metadata at a service URI, or at the path of what is read.

    A path is that of a JSON file, a store's directory or a dumped folder. A JSON file is read
    whole into a `MemoryStore`; directories are opened for reading. A `ZooKeeperStore` holds a
    connection: close it; opening it writes no LAYOUT. Raises `CorruptionError` for a file that
    is no metadata file, else as `DirectoryStore`, `DumpStore` and `ZooKeeperStore`,
    `BkstoreError` for what cannot be read.
    """
    path = metadata_place(place)
    if isinstance(path, str):
        return _zookeeper(path, make_layout=False)
    if os.path.isdir(path):
        return DirectoryStore(path, read_only=True) if is_store(path) else DumpStore(path)
    with readable(path):
        data = read_whole(path, _FILE_LIMIT, text=True)
    try:
        return store_of(decode_file(data))
    except CorruptionError as error:
        raise error.within(path) from None
    except InvalidArgument as error:  # a number or name that no store can keep
        raise CorruptionError(path, None, str(error)) from error


def open_store(place: str | os.PathLike[str]) -> MetadataStore:
    """Return a store to be changed, at a service URI or in a directory, which is made if need be.

    Raises as `ZooKeeperStore` and `DirectoryStore`; `InvalidArgument` for a file.
    """
    path = metadata_place(place)
    if isinstance(path, str):
        return _zookeeper(path, make_layout=True)
    if path.is_file():
        raise InvalidArgument(f"{path} is a file: a store is a directory or a service URI")
    return DirectoryStore(path)


def _zookeeper(uri: str, *, make_layout: bool) -> MetadataStore:
    from bkstore.cluster.store.zookeeper.store import ZooKeeperStore

    return ZooKeeperStore(uri, make_layout=make_layout)


@contextmanager
def opened_metadata(place: str | os.PathLike[str]) -> Iterator[MetadataStore]:
    """Yield what `open_metadata` opens, and close it where it holds a connection."""
    store = open_metadata(place)
    try:
        yield store
    finally:
        close = getattr(store, "close", None)
        if close is not None:
            close()


def refuse_metadata(target: str | os.PathLike[str], place: str | os.PathLike[str]) -> None:
    """Raise `InvalidArgument` if a file to be written is, or lies in, what is read."""
    path = metadata_place(place)
    if isinstance(path, Path):
        refuse_inputs(target, [path])
