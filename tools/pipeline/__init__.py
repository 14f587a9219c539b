"""The data pipeline, measured: dump, loads and analyses of three bookies, by several engines.

    python -m tools.pipeline 10000000 --json pipeline.json
    python -m tools.pipeline 50000000 --only sequences,violations --engines local,duckdb,spark

An experiment of `bkstore.lab`: `experiment` has its columns and options. `world` writes the indexes
of three bookies (2-of-3 striped ledgers, some with random losses), `steps` has the steps of our
engines, `other_programs` those of other programs over the same files. `step_process` runs a step in
a process of its own and measures seconds (the first round separately, because libraries and Spark's
workers start in it; the start of Python and of a Spark session is not counted), CPU seconds of the
process and its descendants, and the sum of their peak resident sizes. Engines "one executor" and
"two executors" are Spark's executors of one core each. This module imports nothing: their memory
counts.
"""
