"""What every experiment has in common: data in, sides, samples, a JSON document, table, picture.

An experiment is a module of `tools/` that makes an `Experiment` and hands it to `main`: columns,
panels, a function that measures and one that says what was found. Read `experiment` first;
`docs/lab.md` has one in full.

`command` is the command line, `document` the JSON (made, saved, read again) and `comparison` what
differs between two of them. `table`, `picture` and `page` show a document and measure nothing.
`samples` has what experiments measure with: latencies, CPU seconds, bytes read and written.
`index_loads` makes what an index is filled with, from the generators of `bkstore.testing` or from
a dump, and `traces` what is read from it. `tuned_rocks` opens RocksDB with other options,
`peer_stores` are what it is compared with.
"""

from tools.lab.command import main
from tools.lab.experiment import Column, Experiment, Panel, Row, Run

__all__ = ["Column", "Experiment", "Panel", "Row", "Run", "main"]
