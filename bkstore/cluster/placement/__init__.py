"""Placement: which bookies make a good ensemble, and where in a network they stand.

`policies` judges ensembles and chooses them: read it first. `network_locations` reads the file
that says where each bookie stands.
"""

__all__ = ["network_locations", "policies"]
