"""The lab: experiments and benchmarks, `python -m tools.NAME` in a checkout."""
