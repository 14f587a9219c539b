"""The pages about speed, made of kept results: `python -m tools.performance`.

Results lie in `docs/figures/`, one JSON a run (`python -m tools.bench --row NAME --into
docs/figures` adds one, and takes what it measured anew out of older ones). `figures` reads them,
`promises` are the ratios that must hold, `curves` draws figures over sizes, `pages` puts tables
between the marks of `docs/performance.md` and `docs/performance-figures.md`. Prose around the
marks is kept by hand.
"""
