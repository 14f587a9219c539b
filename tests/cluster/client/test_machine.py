"""The state machine of clusters, without a network."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.cluster.client.cluster_machine import ClusterMachine

TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=12, stateful_step_count=25)


@pytest.mark.long
class TestClusterLong(ClusterMachine.TestCase):  # type: ignore[misc,name-defined]
    """The same, longer."""

    settings = settings(max_examples=150, stateful_step_count=50)
