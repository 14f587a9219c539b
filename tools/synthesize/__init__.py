"""A synthetic cluster: the dump of many bookies, its metadata, and counts of planted faults.

    python -m tools.synthesize OUT --bookies 1000 --entries 1000000

Writes `OUT/dump` (as `bkstore dump` would), `OUT/metadata.json` and `OUT/planted.json`: numbers
that analyses must find. `shape` has the parameters, `cluster` draws ledgers, ensembles and faults
as arrays, `expected_results` counts what analyses must find, `bookie_entries` generates the rows of
one bookie, and `writing` writes the files.
"""
