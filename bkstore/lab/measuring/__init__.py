"""Measuring: what implementations and queries cost in time, CPU and bytes.

`timing` runs implementations of the same work in turns. `latencies_and_costs` measures queries one
by one, and long work with all threads of the process.
"""

__all__: list[str] = []
