"""Locations of files: paths, ``file:`` URIs, and URIs of file systems of pyarrow or fsspec.

A path has to be a regular file. Other URIs are opened with pyarrow (`s3`, `gs`, `hdfs`, ...) or, if
it does not know the scheme, with fsspec. Hadoop's `s3a` and `s3n` are read as `s3`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from bkstore.errors import CorruptionError, InvalidArgument, MissingDependency
from bkstore.files.opening import check_regular
from bkstore.files.os_errors import convert_read_errors

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_HADOOP_S3 = ("s3a", "s3n")


def local_path(location: str) -> str:
    """Return a path unchanged, or a ``file:`` URI's; raises `InvalidArgument` for another host.
    >>> local_path("/data/dump"), local_path("file:///data/my%20dump"), local_path("file:/d")
    ('/data/dump', '/data/my dump', '/d')
    """
    if not location.lower().startswith("file:/"):
        return location
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        raise InvalidArgument(f"{location}: names another host; local files are file:///PATH")
    return unquote(parts.path)


def is_remote(location: str) -> bool:
    """Return whether a location is a URI of a file system other than the local one.

    >>> is_remote("s3://bucket/dump"), is_remote("file:///dump"), is_remote("a:b/dump")
    (True, False, False)
    """
    scheme_match = _SCHEME.match(location)
    return scheme_match is not None and scheme_match[1].lower() != "file"


def require_local_path(location: str | os.PathLike[str], content: str) -> None:
    """Raise `InvalidArgument` for a URI where a local path is needed for `content`."""
    text = os.fspath(location)
    if _SCHEME.match(text):
        raise InvalidArgument(f"{text}: is a URI; {content} can be written to a local path only")


def remote_file_system(location: str) -> tuple[Any, str]:
    """Return (a pyarrow file system, the path in it) of a URI.

    Raises `InvalidArgument` for an invalid URI or scheme, `MissingDependency` for its package.
    """
    import pyarrow as pa
    from pyarrow import fs

    scheme, after_scheme = location.split(":", 1)
    if not after_scheme.startswith("//"):
        raise InvalidArgument(f"{location}: a URI is {scheme}://..., with two slashes")
    scheme_name = "s3" if scheme.lower() in _HADOOP_S3 else scheme.lower()
    try:
        system_and_path: tuple[Any, str] = fs.FileSystem.from_uri(f"{scheme_name}:{after_scheme}")
        return system_and_path
    except pa.ArrowInvalid as error:
        # For a scheme that pyarrow does not know, try fsspec.
        if "nrecognized filesystem type" not in str(error):
            raise InvalidArgument(f"{location}: {_first_line(error)}") from None
    try:
        core = import_module("fsspec.core")
    except ImportError as error:
        reason = f"files of {scheme}:, which pyarrow does not support,"
        raise MissingDependency(f"{reason} need fsspec: pip install fsspec") from error
    try:
        system, path = core.url_to_fs(location)
    except ImportError as error:
        raise MissingDependency(f"files of {scheme}: {_first_line(error)}") from error
    except ValueError as error:
        raise InvalidArgument(f"{location}: {_first_line(error)}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def remote_dataset(locations: Sequence[str]) -> Any:
    """Return one or more files of a remote file system as a `pyarrow.dataset.Dataset`."""
    import pyarrow.dataset as ds

    first, *_ = uris = [uri.partition("?")[0] for uri in locations]
    # Resolve only the first URI, because each resolution may cost a request. The other paths are
    # derived from it: the URIs differ from the first one only behind their common prefix.
    system, path = remote_file_system(locations[0])
    paths = []
    for uri in uris:
        common_length = len(os.path.commonpath([first, uri]))
        paths.append(path[: len(path) - len(first) + common_length] + uri[common_length:])
    return ds.dataset(paths, filesystem=system, format="parquet")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def opened_parquet(location: str) -> Iterator[pq.ParquetFile]:
    """Yield an open Parquet file; raises `CorruptionError` for content that pyarrow cannot read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with convert_read_errors(location):
        try:
            if is_remote(location):
                system, path = remote_file_system(location)
                with system.open_input_file(path) as source, pq.ParquetFile(source) as file:
                    yield file
            else:
                path = local_path(location)
                check_regular(path)
                with pq.ParquetFile(path) as file:
                    yield file
        except FileNotFoundError as error:  # damage, because the manifest lists the file
            raise CorruptionError(location, None, f"cannot be read: {error.strerror}") from None
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of the system; pyarrow's own decoding errors have no errno
            reason = f"cannot be read as Parquet: {_first_line(error)}"
            raise CorruptionError(location, None, reason) from None
