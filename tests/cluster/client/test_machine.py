"""The state machine of clusters, without a network: one entry under way, and many."""

from __future__ import annotations

import pytest
from hypothesis import settings

from bkstore.cluster import Client, ClientOptions, Cluster
from bkstore.cluster.client.workers import Workers
from tests.cluster.client.cluster_machine import ClusterMachine


class PipelinedCluster(Cluster):
    """A cluster whose clients have many entries under way, and ask bookies side by side."""

    def client(self, name: str, options: ClientOptions | None = None) -> Client:
        """Return a client with threads of its own."""
        plain = super().client(name, options).context
        self.workers = [*getattr(self, "workers", []), Workers()]
        return Client(
            plain.store, plain.bookies, plain.placement, plain.options, workers=self.workers[-1]
        )

    def close(self, checkpoint: bool = True) -> None:
        """End the threads too."""
        super().close(checkpoint)
        for each in getattr(self, "workers", []):
            each.close()


class PipelinedMachine(ClusterMachine):
    """The same rules for such clients."""

    clusters = PipelinedCluster


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=12, stateful_step_count=25)

TestPipelined = PipelinedMachine.TestCase
TestPipelined.settings = settings(max_examples=8, stateful_step_count=25)


@pytest.mark.long
class TestClusterLong(ClusterMachine.TestCase):  # type: ignore[misc,name-defined]
    """The same, longer."""

    settings = settings(max_examples=150, stateful_step_count=50)


@pytest.mark.long
class TestPipelinedLong(PipelinedMachine.TestCase):  # type: ignore[misc,name-defined]
    """The same, longer."""

    settings = settings(max_examples=150, stateful_step_count=50)
