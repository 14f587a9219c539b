"""What endpoints need of a metadata store: bookies with addresses, and auditors' marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from bkstore.cluster.store.api import MetadataStore
from bkstore.wire.admin.messages import Refused

if TYPE_CHECKING:
    from bkstore.cluster.store.zookeeper.underreplication import Underreplication  # kazoo
    from bkstore.formats.metadata.service_info import ServiceInfo


@runtime_checkable
class KnowsAddresses(Protocol):
    """A store that has what bookies registered."""

    def service_info(self, bookie: str) -> ServiceInfo | None:
        """Return what a bookie's registration says, None if it is not registered."""
        ...


@runtime_checkable
class ClusterStore(MetadataStore, KnowsAddresses, Protocol):
    """The store of a cluster with auditors and replication workers: that in ZooKeeper."""

    underreplication: Underreplication

    def read_only_bookies(self) -> frozenset[str]:
        """Return the bookies that are read only."""
        ...

    def cookies(self) -> frozenset[str]:
        """Return all bookies that ever had a cookie."""
        ...

    def delete_cookie(self, bookie: str, version: int | None = None) -> bool:
        """Remove a cookie; return whether it was there."""
        ...


def cluster_of(store: MetadataStore | None) -> ClusterStore:
    """Return the store of a cluster; `Refused` with 503 where there is none."""
    if not isinstance(store, ClusterStore):
        raise Refused(503, "the bookie is in no cluster whose metadata are in ZooKeeper")
    return store
