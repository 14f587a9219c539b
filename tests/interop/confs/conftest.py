"""Clusters for the bookies of a `bk_server.conf`, as those of the tests of clusters."""

from tests.interop.clusters.conftest import new_cluster, processes, real_client

__all__ = ["new_cluster", "processes", "real_client"]
