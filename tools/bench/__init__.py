"""The speed ratios that must hold, measured: `python -m tools.bench`.

Each row measures a path of bkstore against its baselines, interleaved in one run. The benchmark is
an experiment of `bkstore.lab` and asserts nothing: the exit status is 0 if it ran.
`tools.performance` has the ratios that must hold, and builds the pages about them.

`cli` has the command: read it first. `measure` defines rows and cases, `rows` has them, `inputs`
their data. This module imports nothing, so that processes of rows load only what they measure.
"""
