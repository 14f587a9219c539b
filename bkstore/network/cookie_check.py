"""Whether directories are those of this bookie, in this cluster.

The cookie in the directories and the one in the store must say the same. A bookie that lost its
disk, and would answer "no such entry" for what it had acknowledged, is kept from starting so; so
is one of another cluster. Source: `bookie/LegacyCookieValidation`; order: VERSION files are
written first, then the store's cookie.
"""

from __future__ import annotations

from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
from bkstore.errors import UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.cookie import Cookie
from bkstore.formats.metadata.service_info import check_bookie_id
from bkstore.storage.directories.ownership import OwnedDirectories


def check_in(
    store: ZooKeeperStore, place: OwnedDirectories, bookie: str, *, files: Files = OS_FILES
) -> str | None:
    """Return the cluster's instance id if the bookie may start on these directories.

    A new bookie, with no cookie in either place, gets one in both. Where a first start was
    interrupted between the two, and nothing is stored yet, the second is written. Raises
    `UnsupportedLayout` for cookies that differ, that only one side has, or of another bookie or
    cluster; nothing is changed then. `InvalidArgument` for an id that real clients refuse.
    """
    check_bookie_id(bookie)
    instance = store.instance_id()
    place.check_cookie(bookie, instance)
    known = store.cookie(bookie)
    where = place.all[0]
    if place.cookie is None:
        if known is not None:
            raise UnsupportedLayout(
                f"{where}: no cookie here, while the cluster has one of bookie {bookie!r}: a disk "
                "that is not mounted, or another bookie's id?"
            )
        if place.holds_anything():
            raise UnsupportedLayout(f"{where}: holds data, but no cookie says whose")
        _write_both(store, place, bookie, instance, files)
    elif known is None:
        if place.holds_anything():
            raise UnsupportedLayout(
                f"{where}: the cookie of bookie {bookie!r} is here, and not in the cluster: was it "
                "taken out of it?"
            )
        _write_both(store, place, bookie, instance, files)
    else:
        _check_same(place, place.cookie, known.cookie)
    return instance


def _write_both(
    store: ZooKeeperStore,
    place: OwnedDirectories,
    bookie: str,
    instance: str | None,
    files: Files,
) -> None:
    for current in place.all:
        files.makedirs(current)
    store.write_cookie(bookie, place.write_cookie(bookie, instance, files))


def _check_same(place: OwnedDirectories, here: Cookie, known: Cookie) -> None:
    for current in place.without_cookie():
        raise UnsupportedLayout(
            f"{current}: no cookie here, while the cluster has one of bookie {known.bookie_id!r}: "
            "a disk that is not mounted?"
        )
    for name in ("bookie_id", "journal_dirs", "ledger_dirs", "index_dirs", "instance_id"):
        mine, theirs = getattr(here, name), getattr(known, name)
        if mine != theirs:
            raise UnsupportedLayout(
                f"{place.all[0]}: the cookie says {name} {mine!r}, the cluster's {theirs!r}"
            )
