"""The pages about speed, built from saved results: `python -m tools.performance`.

Results are in `docs/figures/`, one JSON document per run (`python -m tools.bench --row NAME --into
docs/figures` adds one, and removes the rows that it measured again from older ones). `figures`
reads them, `promises` has the ratios that must hold, `curves` draws figures by size, and
`page_tables` fills in the tables between the marks of `docs/performance.md` and
`docs/performance-figures.md`. The text around the marks is written by hand.
"""
