"""The speed ratios that must hold, measured: `python -m tools.bench`.

Each row measures a path of bkstore beside what it must beat, in one run, interleaved. It is an
experiment of `tools.lab`, and nothing is asserted: the exit status is 0 if it ran. What must hold
by which figures, and the pages made of them: `tools.performance`.

`cli` has the command: read it first. `measure` says what rows and cases are, `rows` has them, and
`inputs` their data. Nothing is loaded here: the processes that single rows start load what they
measure alone.
"""
