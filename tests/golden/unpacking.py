"""Golden archives unpacked, on Pythons whose `tarfile` has filters and on those without."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

__all__ = ["extract"]


def extract(archive: Path, target: Path) -> None:
    """Unpack an archive of files and folders; `ValueError`, and nothing written, for any other.

    Filters came with 3.11.4; the check here stands for them before, and is stricter: the archives
    hold no links and no devices.
    """
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            path = PurePosixPath(member.name)
            if not (member.isfile() or member.isdir()) or path.is_absolute() or ".." in path.parts:
                raise ValueError(
                    f"{archive}: {member.name!r} is no file or folder below the target"
                )
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(target)
