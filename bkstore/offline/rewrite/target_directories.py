"""Map a source's directories to those of a target.

A bookie finds its data by the names and the order of its directories: the target keeps both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bkstore.files.os_errors import convert_read_errors
from bkstore.storage.directories.layout import Layout
from bkstore.storage.directories.server_conf import flatten_server_conf
from bkstore.storage.read_only.bookie_dir import BookieDir


@dataclass(frozen=True)
class TargetDirectories:
    """The ``current/`` directories of a target, relative to it, in the source's order.

    `target_paths` maps those of the source to the target's. `index_moved`: the databases are put
    into the ledger directories, as db storage has an index directory for each.
    """

    ledger: tuple[Path, ...]
    index: tuple[Path, ...]
    journal: tuple[Path, ...]
    target_paths: dict[Path, Path]
    index_moved: bool

    @classmethod
    def of(cls, bookie: BookieDir, layout: Layout) -> TargetDirectories:
        """Return the target directories for a source that is rewritten in layout `layout`."""
        folders = bookie.folders
        all_currents = dict.fromkeys([*folders.ledger, *folders.index, *folders.journal])
        target_paths = {current: _path_in_target(bookie, current) for current in all_currents}
        ledger, index, journal = (
            tuple(target_paths[current] for current in currents)
            for currents in (folders.ledger, folders.index, folders.journal)
        )
        # db storage needs as many index as ledger directories: its index goes into the latter.
        index_moved = layout == "rocksdb" and len(index) != len(ledger)
        if index_moved:
            index = ledger
            for current in {*folders.index} - {*folders.ledger, *folders.journal}:
                del target_paths[current]  # an index directory without an index would mislead
        return cls(ledger, index, journal, target_paths, index_moved)


def _path_in_target(bookie: BookieDir, current: Path) -> Path:
    """Return where a ``current/`` goes, relative to the target.

    A configured directory keeps its path relative to the conf file if it is below its folder,
    else its absolute path. Other directories keep their path relative to the source's top.
    """
    configured = bookie.folders.configured.get(current)
    if configured is None:
        source_root = Path(os.path.abspath(bookie.path))
        source_root = source_root.parent if source_root.name == "current" else source_root
        return Path(os.path.relpath(os.path.abspath(current), source_root))
    conf_dir = bookie.path.parent
    if configured.is_relative_to(conf_dir):
        return configured.relative_to(conf_dir) / "current"
    return Path(*configured.parts[1:]) / "current"


def encode_target_conf(bookie: BookieDir, target: TargetDirectories) -> bytes | None:
    """Return the `bk_server.conf` for the target, or None if the source was not given as one.

    Included files are inlined. Index directories are removed if the index is moved.
    """
    if not bookie.folders.configured:
        return None
    removed_key = "indexDirectories" if target.index_moved else ""
    with convert_read_errors(bookie.path):
        return flatten_server_conf(bookie.path, without=removed_key)
