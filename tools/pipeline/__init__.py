"""The data pipeline, measured: dump, loads and analyses of three bookies, engines side by side.

    python -m tools.pipeline 10000000 --json pipeline.json
    python -m tools.pipeline 50000000 --only sequences,violations --engines local,duckdb,spark

An experiment of `tools.lab`: `experiment` has its columns and options. `world` makes the indexes
of three bookies (2-of-3 striped ledgers, some with random losses), `steps` has what our engines
do, `other_programs` what others are asked over the same files. `measure` runs a step in a process
of its own: seconds (the first round apart, in which libraries and Spark's workers start; start-up
of Python and of a Spark session is not counted), seconds of CPU of the process and all below it,
and the highest resident sizes (Python's, Java's and those of Spark's Python workers, together).
Engines "one executor" and "two executors" are Spark's executors of one core each. Nothing is
loaded here: those processes load what they measure alone.
"""
