"""Experiments, benchmarks and development tools: `python -m tools.NAME` in a checkout.

Experiments, each with a question about storage layouts, in the framework of `lab`: `layouts`,
`deletes`, `pages`, `keys`, `blooms`, `availability`, `cache`, `batch`, `lookups`. `pipeline`
measures all steps from dump to analyses, `synthesize` writes clusters with known faults, `scale`
measures the analyses of these, `bench` measures the ratios that must hold, and `performance` builds
the documentation pages about them. Development: `parts` runs the tests in parts, `pythons` runs
them on other Python versions, `rooms` checks the imports between the rooms of the package, and
`site` builds the web site of the pages and the API reference.
"""
