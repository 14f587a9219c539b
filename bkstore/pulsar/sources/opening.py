"""Open Pulsar's metadata: by URI, by the path of a copied folder, or in a metadata file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bkstore.cluster.store.zookeeper.service_uri import is_service_uri, parse_service_uri
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.opening import read_text_file
from bkstore.files.os_errors import convert_read_errors
from bkstore.pulsar.sources.exports import decode_nodes
from bkstore.pulsar.sources.folder_nodes import FolderNodes
from bkstore.pulsar.sources.nodes import MANAGED_LEDGERS, PulsarNodes

_MAX_FILE_BYTES = 4 << 30
_URI = re.compile(r"zk:(?://)?([^/]*)(/.*)?")


class PulsarUri(NamedTuple):
    """Servers of ZooKeeper, and the root of Pulsar's metadata: empty, or a path."""

    servers: tuple[str, ...]
    root: str

    def __str__(self) -> str:
        return f"zk://{';'.join(self.servers)}{self.root or '/'}"


def parse_pulsar_location(location: str | os.PathLike[str]) -> PulsarUri | Path:
    """Return the parts of a URI, anything else as a path. A URI is ``zk://HOST:PORT;HOST:PORT/ROOT``,
    or as in Pulsar's `metadataStoreUrl`, ``zk:HOST:PORT,HOST:PORT/ROOT``; ROOT may be missing.
    Raises `InvalidArgument` for another URI.

    >>> parse_pulsar_location("zk:a:2181,b/pulsar")
    PulsarUri(servers=('a:2181', 'b:2181'), root='/pulsar')
    >>> str(parse_pulsar_location("zk://localhost"))
    'zk://localhost:2181/'
    """
    if not isinstance(location, str):
        return Path(location)
    uri_match = _URI.fullmatch(location)
    if uri_match is None:
        if is_service_uri(location):
            message = f"{location!r} is not a URI of Pulsar's metadata, such as zk://host:2181/"
            raise InvalidArgument(message)
        return Path(location)
    servers, root = uri_match[1].replace(",", ";"), (uri_match[2] or "").rstrip("/")
    try:
        parsed = parse_service_uri(f"zk://{servers}{root}{MANAGED_LEDGERS}")
    except InvalidArgument as error:
        text = str(error).replace(MANAGED_LEDGERS, "")
        raise InvalidArgument(text) from None
    return PulsarUri(parsed.servers, root)


def default_pulsar_location(metadata: str | Path) -> PulsarUri | Path:
    """Return where Pulsar's metadata are unless an option says otherwise: in the same ZooKeeper,
    below the parent of the ledgers root; in the same copied folder, or metadata file. If a copied
    folder contains the ledgers root alone, they are beside it.

    >>> str(default_pulsar_location("zk+hierarchical://host:2181/pulsar/ledgers"))
    'zk://host:2181/pulsar'
    """
    if isinstance(metadata, str):
        uri = parse_service_uri(metadata)
        return PulsarUri(uri.servers, uri.root.rpartition("/")[0])
    if metadata.is_dir() and not (metadata / MANAGED_LEDGERS[1:]).is_dir():
        return metadata.resolve().parent
    return metadata


def open_pulsar(location: PulsarUri | Path) -> PulsarNodes:
    """Open Pulsar's metadata for reading; to be closed. Raises `InvalidArgument` for a file or
    folder without them, `CorruptionError` for a file of another form, and as `ZooKeeperNodes`."""
    if isinstance(location, PulsarUri):
        from bkstore.pulsar.sources.zookeeper_nodes import ZooKeeperNodes

        return ZooKeeperNodes(location.servers, location.root)
    if location.is_dir():
        if not (location / MANAGED_LEDGERS[1:]).is_dir():
            raise InvalidArgument(f"{location} has no folder {MANAGED_LEDGERS[1:]}")
        return FolderNodes(location)
    try:
        nodes = decode_nodes(_read_export(location), str(location))
    except CorruptionError as error:
        raise error.relocate(location) from None
    if nodes is None:
        advice = "export it with --pulsar, or name where they are with --pulsar"
        raise InvalidArgument(f"{location} has no metadata of Pulsar; {advice}")
    return nodes


def _read_export(path: Path) -> str | bytes:
    with convert_read_errors(path):
        return read_text_file(path, _MAX_FILE_BYTES)


@contextmanager
def opened_pulsar(location: PulsarUri | Path) -> Iterator[PulsarNodes]:
    """Yield the nodes that `open_pulsar` opens, and close them afterwards."""
    nodes = open_pulsar(location)
    try:
        yield nodes
    finally:
        nodes.close()
