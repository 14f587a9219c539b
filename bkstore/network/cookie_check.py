"""Checks that directories belong to this bookie, in this cluster.

The cookies in the directories and in the store must be equal: a bookie that lost a disk, and would
answer "no such entry" for acknowledged entries, does not start, nor does one of another cluster.
Source: `bookie/LegacyCookieValidation`; VERSION files are written before the store's cookie.
"""

from __future__ import annotations

from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
from bkstore.errors import UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.cookie import Cookie
from bkstore.formats.metadata.bookie_ids import check_bookie_id
from bkstore.storage.directories.directory_cookies import OwnedDirectories


def validate_cookies(
    store: ZooKeeperStore, dirs: OwnedDirectories, bookie_id: str, *, files: Files = OS_FILES
) -> str | None:
    """Return the cluster's instance id if the bookie may start on these directories.

    A new bookie gets both cookies, again if its first start was interrupted between the two writes
    and nothing is stored yet. Raises `UnsupportedLayout`, changing nothing, if a cookie is missing,
    differs, or is of another bookie or cluster; `InvalidArgument` for an id real clients refuse.
    """
    check_bookie_id(bookie_id)
    instance = store.instance_id()
    dirs.check_cookie(bookie_id, instance)
    stored, first_dir = store.cookie(bookie_id), dirs.all[0]
    # Both cookies exist: a known bookie starts again.
    if dirs.cookie is not None and stored is not None:
        _check_same_cookies(dirs, dirs.cookie, stored.cookie)
        return instance
    # One or both are missing. That is right only for a bookie that has no data and that the
    # cluster does not know.
    if stored is not None:
        raise UnsupportedLayout(
            f"{first_dir}: no cookie here, but the cluster has one of bookie {bookie_id!r}: "
            "is a disk not mounted, or is the id another bookie's?"
        )
    if dirs.has_data() and dirs.cookie is None:
        raise UnsupportedLayout(f"{first_dir}: has data, but no cookie to identify the bookie")
    if dirs.has_data():
        raise UnsupportedLayout(
            f"{first_dir}: the cookie of bookie {bookie_id!r} is here, but not in the cluster: was "
            "the bookie decommissioned?"
        )
    # A new bookie, or one whose first start was interrupted.
    for current in dirs.all:
        files.makedirs(current)
    store.write_cookie(bookie_id, dirs.write_cookie(bookie_id, instance, files))
    return instance


def _check_same_cookies(dirs: OwnedDirectories, local: Cookie, stored: Cookie) -> None:
    """Raise `UnsupportedLayout` if a directory has no cookie or one that differs from the
    cluster's."""
    for current in dirs.list_without_cookie():
        claim = f"the cluster has one of bookie {stored.bookie_id!r}"
        raise UnsupportedLayout(f"{current}: no cookie here, but {claim}: is a disk not mounted?")
    for field in ("bookie_id", "journal_dirs", "ledger_dirs", "index_dirs", "instance_id"):
        local_value, stored_value = getattr(local, field), getattr(stored, field)
        if local_value != stored_value:
            values = f"{local_value!r}, the cluster's cookie has {stored_value!r}"
            raise UnsupportedLayout(f"{dirs.all[0]}: the cookie has {field} {values}")
