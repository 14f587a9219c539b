"""Interfaces of the metadata store that cluster endpoints need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from bkstore.cluster.store.api import MetadataStore
from bkstore.wire.admin.messages import HttpError

if TYPE_CHECKING:
    from bkstore.cluster.store.zookeeper.underreplication import Underreplication  # kazoo
    from bkstore.formats.metadata.service_info import ServiceInfo


@runtime_checkable
class ClusterStore(MetadataStore, Protocol):
    """The store of a cluster with auditors and replication workers: the one in ZooKeeper."""

    underreplication: Underreplication

    def service_info(self, bookie: str) -> ServiceInfo | None:
        """Return the service info of a bookie, or None if it is not registered."""
        ...

    def read_only_bookies(self) -> frozenset[str]:
        """Return the read-only bookies."""
        ...

    def cookies(self) -> frozenset[str]:
        """Return all bookies with a cookie."""
        ...

    def delete_cookie(self, bookie: str, version: int | None = None) -> bool:
        """Remove a cookie; return whether it was there."""
        ...


def require_cluster_store(store: MetadataStore | None) -> ClusterStore:
    """Return the store as a cluster's. Raises `HttpError` with 503 if it is not one."""
    if not isinstance(store, ClusterStore):
        raise HttpError(503, "the bookie is not in a cluster with metadata in ZooKeeper")
    return store
