"""Simulated years of clusters: replicas that bookies lose, bookies that fail, and what is repaired.

Read first: `simulate` in `cluster_years`. The rules of loss and repair are in `replicas`;
`loss_formulas` has what can be computed without a simulation.
"""

from bkstore.lab.simulation.cluster_years import LossRecord, simulate
from bkstore.lab.simulation.loss_formulas import (
    loss_share_of_failed_bookies,
    loss_share_of_lost_replicas,
)
from bkstore.lab.simulation.replicas import ClusterModel, SimulatedReplicas

__all__ = [
    "ClusterModel",
    "LossRecord",
    "SimulatedReplicas",
    "loss_share_of_failed_bookies",
    "loss_share_of_lost_replicas",
    "simulate",
]
