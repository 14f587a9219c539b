"""Placement: which bookies make a good ensemble, by their locations in a network.

Read `policies` first: it judges and chooses ensembles. `network_locations` reads their file.
"""

__all__ = ["network_locations", "policies"]
