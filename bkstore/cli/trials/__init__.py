"""Commands to try bkstore out, on data that they make.

`demo` is a tour of all of it, over the cluster that `demo_data` makes; `lab` runs experiments with
storage layouts.
"""

__all__ = ["demo", "demo_data", "lab"]
