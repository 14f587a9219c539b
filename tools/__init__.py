"""Benchmarks and development tools: `python -m tools.NAME` in a checkout.

Measurements: `bench` measures the ratios that must hold, `pipeline` all steps from dump to
analyses, both as experiments of `bkstore.lab`; `performance` builds the documentation pages about
them. `synthesize` writes clusters with known faults, `scale` measures the analyses of these.
Development: `parts` runs the tests in parts, `pythons` runs
them on other Python versions, `rooms` checks the imports between the rooms of the package, and
`site` builds the web site of the pages and the API reference.
"""
