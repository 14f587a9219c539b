"""The speed ratios that must hold (design, section 9): `python -m tools.bench`.

Each row measures a path of bkstore beside what it must beat, in one run, interleaved, and
prints medians, the ratio and whether it holds. It is a measurement: nothing is asserted, the
exit status is 0 if it ran. Not here: absolute numbers worth quoting; those move with the
machine. How to read the result: `docs/performance.md`.

`cli` has the command: read it first. Nothing is loaded here: the processes that single rows start
load what they measure alone.
"""
