"""The clusters and clients of other interop tests."""

from tests.interop.clusters.conftest import new_cluster, real_client

__all__ = ["new_cluster", "real_client"]
