"""Archives are unpacked below their target, or not at all."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.golden.unpacking import extract


def _archive(path: Path, odd: tarfile.TarInfo | None = None) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        folder.mode = 0o755
        tar.addfile(folder)
        file = tarfile.TarInfo("a/b")
        file.size = 3
        tar.addfile(file, io.BytesIO(b"abc"))
        if odd:
            tar.addfile(odd)
    return path


@pytest.mark.parametrize("filters", [True, False])
def test_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: bool) -> None:
    """Files and folders are unpacked, whether this Python's `tarfile` knows filters or not."""
    if filters and not hasattr(tarfile, "data_filter"):
        pytest.skip("tarfile has no filters")
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        monkeypatch.setattr(tarfile.TarFile, "extractall", _without_filter)
    extract(_archive(tmp_path / "x.tar.gz"), tmp_path / "out")

    assert b"abc" == (tmp_path / "out" / "a" / "b").read_bytes()


_extractall = tarfile.TarFile.extractall


def _without_filter(tar: tarfile.TarFile, path: Path) -> None:
    """As `extractall` was before there were filters: it takes none."""
    tar.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
    _extractall(tar, path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../out-of-it", tarfile.REGTYPE),
        ("a/../../out-of-it", tarfile.REGTYPE),
        ("/out-of-it", tarfile.REGTYPE),
        ("a/link", tarfile.SYMTYPE),
        ("a/link", tarfile.LNKTYPE),
        ("a/fifo", tarfile.FIFOTYPE),
    ],
)
def test_others_are_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    """A name that leaves the target, a link or a special file: refused, nothing is written."""
    odd = tarfile.TarInfo(name)
    odd.type, odd.linkname = kind, "a/b"
    archive = _archive(tmp_path / "x.tar.gz", odd)

    with pytest.raises(ValueError, match="below the target"):
        extract(archive, tmp_path / "out")
    assert [archive] == list(tmp_path.iterdir())
