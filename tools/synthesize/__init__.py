"""A synthetic cluster: the dump of many bookies, its metadata, and what is wrong in it, counted.

    python -m tools.synthesize OUT --bookies 1000 --entries 1000000

Writes `OUT/dump` (as `bkstore dump` would), `OUT/metadata.json` and `OUT/planted.json`: numbers
that analyses must find. `shape` says what is asked for, `cluster` draws ledgers, ensembles and
faults as arrays, `planted` counts what they come to, `bookie_entries` makes the rows of one
bookie, `writing` the files.
"""
