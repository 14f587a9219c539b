"""Where Pulsar's nodes are read from: ZooKeeper, a copied folder, a metadata file, or memory.

`nodes` has the protocol `PulsarNodes` and nodes in memory: read it first. `opening` opens a URI or
path: `zookeeper_nodes`, `folder_nodes`, or the nodes in a metadata file, which `exports` reads and
writes. `node_paths` finds the topics and schemas in a tree.
"""

from bkstore.pulsar.sources.nodes import MemoryNodes, NodeValue, PulsarNodes
from bkstore.pulsar.sources.opening import open_pulsar, parse_pulsar_location

__all__ = ["MemoryNodes", "NodeValue", "PulsarNodes", "open_pulsar", "parse_pulsar_location"]
