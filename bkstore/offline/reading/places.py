"""Where files lie: paths, ``file:`` URIs, and URIs of file systems that pyarrow or fsspec know.

A path is opened as every file of ours is: what is no regular file is refused by name. A URI of
another file system goes to pyarrow (`s3`, `gs`, `hdfs`, ...), and where it does not know the
scheme to fsspec, if that is installed. Hadoop's `s3a` and `s3n` are `s3` there.
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
from bkstore.files.os_errors import readable

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_HADOOP_S3 = ("s3a", "s3n")


def local_path(place: str) -> str:
    """Return a path as it is, and that of a ``file:`` URI.

    Raises `InvalidArgument` for a ``file:`` URI of another host.

    >>> local_path("/data/dump"), local_path("file:///data/my%20dump"), local_path("file:/d")
    ('/data/dump', '/data/my dump', '/d')
    """
    if not place.lower().startswith("file:/"):
        return place
    parts = urlsplit(place)
    if parts.netloc not in ("", "localhost"):
        raise InvalidArgument(f"{place}: names another host; local files are file:///PATH")
    return unquote(parts.path)


def is_remote(place: str) -> bool:
    """Return whether a place is a URI of another file system than this machine's.

    >>> is_remote("s3://bucket/dump"), is_remote("file:///dump"), is_remote("a:b/dump")
    (True, False, False)
    """
    found = _SCHEME.match(place)
    return found is not None and found[1].lower() != "file"


def only_path(place: str | os.PathLike[str], what: str) -> None:
    """Raise `InvalidArgument` for a URI where only a path of this machine will do.

    `what` is what lies there: the error says that it goes to a path.
    """
    text = os.fspath(place)
    if _SCHEME.match(text):
        raise InvalidArgument(f"{text}: is a URI; {what} goes to a path of this machine")


def remote_file_system(place: str) -> tuple[Any, str]:
    """Return (a pyarrow file system, the path there) of a URI.

    Raises `InvalidArgument` for one that is none or whose scheme nobody knows,
    `MissingDependency` where it needs fsspec, or what fsspec asks for, and that is not installed.
    """
    import pyarrow as pa
    from pyarrow import fs

    scheme, rest = place.split(":", 1)
    if not rest.startswith("//"):
        raise InvalidArgument(f"{place}: a URI is {scheme}://..., with two slashes")
    name = "s3" if scheme.lower() in _HADOOP_S3 else scheme.lower()
    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(f"{name}:{rest}")
        return found
    except pa.ArrowInvalid as error:
        if "nrecognized filesystem type" not in str(error):
            raise InvalidArgument(f"{place}: {_first_line(error)}") from None
    try:
        core = import_module("fsspec.core")
    except ImportError as error:
        reason = f"files of {scheme}:, which pyarrow does not know,"
        raise MissingDependency(f"{reason} need fsspec: pip install fsspec") from error
    try:
        system, path = core.url_to_fs(place)
    except ImportError as error:
        raise MissingDependency(f"files of {scheme}: {_first_line(error)}") from error
    except ValueError as error:
        raise InvalidArgument(f"{place}: {_first_line(error)}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def remote_dataset(places: Sequence[str]) -> Any:
    """Return files of one remote file system as a `pyarrow.dataset.Dataset`; one at least."""
    import pyarrow.dataset as ds

    first, *_ = named = [place.partition("?")[0] for place in places]
    system, path = remote_file_system(places[0])  # each look-up of a store may cost a request
    paths = []
    for place in named:
        alike = len(os.path.commonpath([first, place]))
        paths.append(path[: len(path) - len(first) + alike] + place[alike:])
    return ds.dataset(paths, filesystem=system, format="parquet")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def opened_parquet(place: str) -> Iterator[pq.ParquetFile]:
    """Yield an open Parquet file; what pyarrow cannot read of it is a `CorruptionError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with readable(place):
        try:
            if is_remote(place):
                system, path = remote_file_system(place)
                with system.open_input_file(path) as source, pq.ParquetFile(source) as file:
                    yield file
            else:
                path = local_path(place)
                check_regular(path)
                with pq.ParquetFile(path) as file:
                    yield file
        except FileNotFoundError as error:  # a dump names the files that it has
            raise CorruptionError(place, None, f"cannot be read: {error.strerror}") from None
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the system's; pyarrow's own, about what it cannot decode, has no number
            reason = f"cannot be read as Parquet: {_first_line(error)}"
            raise CorruptionError(place, None, reason) from None
