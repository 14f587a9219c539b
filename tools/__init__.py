"""The lab: experiments and benchmarks, `python -m tools.NAME` in a checkout.

Experiments, each a question about layouts, over the frame of `lab`: `layouts`, `deletes`, `pages`,
`keys`, `blooms`, `availability`, `cache`, `batch`, `lookups`. `pipeline` measures the road from
dump to analyses, `synthesize` makes clusters with known faults, `scale` measures analyses of them,
`bench` has the ratios that must hold, `performance` makes the pages of them. The house: `rooms` is
the order of the package's rooms, `pythons` runs the tests on others, `site` makes the pages and
the reference a site.
"""
