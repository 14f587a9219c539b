"""Endpoints `bookie/list_bookies`, `list_bookie_info`, `cluster_info`: the cluster's bookies.

In BookKeeper: `ListBookiesService`, `ListBookieInfoService`, `ClusterInfoService`.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import BkstoreError, CorruptionError
from bkstore.wire.admin.messages import HttpError, HttpRequest, HttpResponse, json_response
from bkstore.wire.admin.operator_endpoints.cluster_store import ClusterStore, require_cluster_store
from bkstore.wire.admin.operator_endpoints.host_callbacks import Controls
from bkstore.wire.sasl import SaslUser

LOG = logging.getLogger("bkstore.wire.admin")

_TIMEOUT_SECONDS = 3.0
"""Seconds for a bookie to answer with its disk space."""

_MAX_CONCURRENT_REQUESTS = 16
_UNITS = ("", "KB", "MB", "GB", "TB")


class BookieEndpoints:
    """Lists the bookies of a cluster and their disk space."""

    def __init__(self, metadata: MetadataStore | None, controls: Controls) -> None:
        self._metadata = metadata
        self._controls = controls

    def list_bookies(self, request: HttpRequest) -> HttpResponse:
        """Answer with id -> null, or id -> host, for the writable or the read-only bookies."""
        store = require_cluster_store(self._metadata)
        read_only = request.parameters.get("type") == "ro"
        with_hosts = request.parameters.get("print_hostnames") == "true"
        # A store that registers no bookies lists none as writable (None).
        bookies = store.read_only_bookies() if read_only else (store.writable_bookies() or ())
        hosts = {
            bookie: _host_of(store, bookie) if with_hosts else None for bookie in sorted(bookies)
        }
        return json_response(hosts)

    def list_bookie_info(self, request: HttpRequest) -> HttpResponse:
        """Answer with the disk space of each bookie that reports it, and with the totals."""
        store = require_cluster_store(self._metadata)
        bookies = sorted(store.registered_bookies() or ())
        ask_bookie = partial(_disk_space, store, self._controls.sasl)
        with ThreadPoolExecutor(_MAX_CONCURRENT_REQUESTS, "bkstore-admin-disks") as executor:
            space_of_bookie = zip(bookies, executor.map(ask_bookie, bookies))
            spaces = {bookie: space for bookie, space in space_of_bookie if space is not None}
        if not spaces:
            raise HttpError(404, "no registered bookie reports its disk space")
        # the texts, with their punctuation, are BookKeeper's
        rows = {bookie: f": {_space_text(*space)}," for bookie, space in spaces.items()}
        free, total = (sum(column) for column in zip(*spaces.values()))
        return json_response({**rows, "ClusterInfo: ": _space_text(free, total)})

    def show_cluster_info(self, request: HttpRequest) -> HttpResponse:
        """Answer with the auditor, whether ledgers are underreplicated, and counts of bookies."""
        store = require_cluster_store(self._metadata)
        marks = store.underreplication
        auditor = marks.auditor()
        total = len(store.cookies())
        writable = len(store.writable_bookies() or ())
        read_only = len(store.read_only_bookies())
        return json_response(
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


def _registered_address(store: ClusterStore, bookie_id: str) -> tuple[str, int] | None:
    """Return the address in a bookie's registration; None without one, or if it is damaged."""
    try:
        info = store.service_info(bookie_id)
    except CorruptionError as error:
        LOG.warning("bookie %s is skipped: %s", bookie_id, error)
        return None
    return None if info is None else info.address


def _host_of(store: ClusterStore, bookie_id: str) -> str | None:
    address = _registered_address(store, bookie_id)
    return None if address is None else address[0]


def _disk_space(store: ClusterStore, user: SaslUser | None, bookie: str) -> tuple[int, int] | None:
    """Return free and total bytes of a bookie's disks, or None if it does not answer."""
    from bkstore.wire.client import WireClient

    address, timeout = _registered_address(store, bookie), _TIMEOUT_SECONDS
    if address is None:
        return None
    with WireClient(address, "v3", timeout=timeout, sasl=user, bookie_id=bookie) as client:
        try:
            space = client.disk_space()
        except BkstoreError as error:
            LOG.warning("bookie %s does not report its disk space: %s", bookie, error)
            return None
    return space.free or 0, space.total or 0


def _space_text(free: int, total: int) -> str:
    return f"{{Free: {free}{_readable_size(free)}, Total: {total}{_readable_size(total)}}}"


def _readable_size(byte_count: int) -> str:
    """Return a size in decimal units, truncated to three decimals; "" below 1000 bytes.

    >>> [_readable_size(count) for count in (999, 1000, 1234567, 10**16)]
    ['', '(1KB)', '(1.234MB)', '(10000TB)']
    """
    unit = min((len(str(byte_count)) - 1) // 3, len(_UNITS) - 1)
    if not unit:
        return ""
    whole, thousandths = divmod(byte_count * 1000 // 1000**unit, 1000)
    digits = f"{whole}.{thousandths:03}".rstrip("0").rstrip(".")
    return f"({digits}{_UNITS[unit]})"
