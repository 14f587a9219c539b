"""`bookie/list_bookies`, `list_bookie_info`, `cluster_info`: the bookies of the cluster.

Upstream: `ListBookiesService`, `ListBookieInfoService`, `ClusterInfoService`.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import BkstoreError, CorruptionError
from bkstore.wire.admin.messages import Answer, Refused, Request, json_answer
from bkstore.wire.admin.operations.cluster import KnowsAddresses, cluster_of
from bkstore.wire.admin.operations.controls import Controls
from bkstore.wire.sasl import SaslUser

LOG = logging.getLogger("bkstore.wire.admin")

_TIMEOUT = 3.0
"""Seconds in which a bookie must tell its disk space."""

_AT_ONCE = 16
_UNITS = ("", "KB", "MB", "GB", "TB")


class BookieEndpoints:
    """Lists the bookies of a cluster, and asks them for their disk space."""

    def __init__(self, metadata: MetadataStore | None, controls: Controls) -> None:
        self._metadata = metadata
        self._controls = controls

    def listed(self, request: Request) -> Answer:
        """Answer with id -> null, or id -> host, of the writable or of the read-only bookies."""
        store = cluster_of(self._metadata)
        read_only = request.parameters.get("type") == "ro"
        hosts = request.parameters.get("print_hostnames") == "true"
        names = store.read_only_bookies() if read_only else store.writable_bookies() or ()
        return json_answer({name: _host(store, name) if hosts else None for name in sorted(names)})

    # -- disks

    def disks(self, request: Request) -> Answer:
        """Answer with the disk space of each bookie that tells it, and of all together."""
        store = cluster_of(self._metadata)
        names = sorted(store.registered_bookies() or ())
        with ThreadPoolExecutor(_AT_ONCE, "bkstore-admin-disks") as threads:
            found = threads.map(lambda name: _disk_space(store, name, self._controls.sasl), names)
            asked = zip(names, found)
            spaces = {name: space for name, space in asked if space is not None}
        if not spaces:
            raise Refused(404, "no bookie is registered that tells its disk space")
        rows = {name: f": {_row(free, total)}," for name, (free, total) in spaces.items()}
        free, total = (sum(column) for column in zip(*spaces.values()))
        return json_answer({**rows, "ClusterInfo: ": _row(free, total)})

    # -- the cluster

    def summary(self, request: Request) -> Answer:
        """Answer with the auditor, whether ledgers are marked, and how many bookies there are."""
        store = cluster_of(self._metadata)
        marks = store.underreplication
        auditor = marks.auditor()
        total = len(store.cookies())
        writable = len(store.writable_bookies() or ())
        read_only = len(store.read_only_bookies())
        return json_answer(
            {
                "auditorElected": auditor is not None,
                "auditorId": auditor or "",
                "clusterUnderReplicated": bool(store.marked()),
                "ledgerReplicationEnabled": marks.enabled,
                "totalBookiesCount": total,
                "writableBookiesCount": writable,
                "readonlyBookiesCount": read_only,
                "unavailableBookiesCount": total - writable - read_only,
            }
        )


def _address(store: KnowsAddresses, bookie: str) -> tuple[str, int] | None:
    try:
        info = store.service_info(bookie)
    except CorruptionError as error:
        LOG.warning("bookie %s is passed over: %s", bookie, error)
        return None
    return None if info is None else info.address


def _host(store: KnowsAddresses, bookie: str) -> str | None:
    address = _address(store, bookie)
    return None if address is None else address[0]


def _disk_space(
    store: KnowsAddresses, bookie: str, user: SaslUser | None
) -> tuple[int, int] | None:
    """Return free and total bytes of a bookie's disks; None where it does not tell."""
    from bkstore.wire.client import WireClient

    address = _address(store, bookie)
    if address is None:
        return None
    with WireClient(address, "v3", timeout=_TIMEOUT, sasl=user, bookie_id=bookie) as client:
        try:
            space = client.disk_space()
        except BkstoreError as error:
            LOG.warning("bookie %s does not tell its disk space: %s", bookie, error)
            return None
    return space.free or 0, space.total or 0


def _row(free: int, total: int) -> str:
    return f"{{Free: {free}{_readable(free)}, Total: {total}{_readable(total)}}}"


def _readable(count: int) -> str:
    """Return a number of bytes in decimal units, cut to three digits; nothing for a small one.

    >>> [_readable(count) for count in (999, 1000, 1234567, 10**16)]
    ['', '(1KB)', '(1.234MB)', '(10000TB)']
    """
    unit = min((len(str(count)) - 1) // 3, len(_UNITS) - 1)
    if not unit:
        return ""
    whole, rest = divmod(count * 1000 // 1000**unit, 1000)
    digits = f"{whole}.{rest:03}".rstrip("0").rstrip(".")
    return f"({digits}{_UNITS[unit]})"
