"""The data pipeline, measured: dump, loads and analyses of three bookies, engines side by side.

    python -m tools.pipeline 10000000 --json pipeline.json
    python -m tools.pipeline 50000000 --only sequences,violations --engines local,duckdb,spark

Makes the indexes of three bookies (2-of-3 striped ledgers, some with random losses), then runs
each step in a process of its own: seconds (the first round apart, in which libraries and Spark's
workers start, and the best of the others; start-up of Python and of a Spark session is not
counted), seconds of CPU of the process and all below it, rows a second, and the highest resident
sizes (Python's, Java's and those of Spark's Python workers, together). Engines "one executor" and
"two executors" are Spark's executors of one core each. JSON first, the tables are made of it.
"""

from tools.pipeline.run import main
from tools.pipeline.steps import KERNELS, TEXTS
from tools.pipeline.world import make_world

__all__ = ["KERNELS", "TEXTS", "main", "make_world"]
