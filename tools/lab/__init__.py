"""What every experiment has in common: data in, sides, samples, a JSON document, table, picture.

An experiment is a module of `tools/` that makes an `Experiment` and hands it to `main`: columns,
panels, a function that measures and one that says what was found. Read `experiment` first;
`docs/lab.md` has one in full.

`command` is the command line, `document` the JSON (made, saved, read again, kept in a folder with
others), `known_documents` what JSON must have to be read as one, `machine` what stands in it about
where it was made, and `comparison` what differs between two of them. `table`, `picture` (with
`log_axes`) and `page` show a document and measure nothing. `samples` and `sides` are what
experiments measure with: latencies, CPU seconds, bytes; forms of the same work beside each other.
`bitmaps` makes those of pyroaring. `workloads` has what is put and read, `stores` what indexes are
compared with.
"""

from tools.lab.command import main
from tools.lab.experiment import Column, Experiment, Panel, Row, Run

__all__ = ["Column", "Experiment", "Panel", "Row", "Run", "main"]
