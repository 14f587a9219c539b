"""The state machine of clusters over sockets, by both protocols."""

from __future__ import annotations

import pytest
from hypothesis import settings

from bkstore.testing.socket_cluster import SocketCluster
from tests.cluster.client.cluster_machine import ClusterMachine


class V2Cluster(SocketCluster):
    """Reached by v2."""

    protocol = "v2"
    extended = False


class PlainV3Cluster(SocketCluster):
    """Reached by v3 as real bookies speak it."""

    extended = False


class ExtendedMachine(ClusterMachine):
    """Over v3 with scopes and batch reads."""

    clusters = SocketCluster


class V2Machine(ClusterMachine):
    """Over v2, which knows one scope."""

    clusters = V2Cluster
    scopes = False


class PlainV3Machine(ClusterMachine):
    """Over v3 without scopes and batch reads."""

    clusters = PlainV3Cluster
    scopes = False


FEW = settings(max_examples=5, stateful_step_count=20)
MANY = settings(max_examples=60, stateful_step_count=40)

TestExtended = ExtendedMachine.TestCase
TestExtended.settings = FEW
TestV2 = V2Machine.TestCase
TestV2.settings = FEW
TestPlainV3 = PlainV3Machine.TestCase
TestPlainV3.settings = FEW


@pytest.mark.long
class TestExtendedLong(ExtendedMachine.TestCase):  # type: ignore[misc,name-defined]
    """The same, longer."""

    settings = MANY


@pytest.mark.long
class TestV2Long(V2Machine.TestCase):  # type: ignore[misc,name-defined]
    """The same, longer."""

    settings = MANY
