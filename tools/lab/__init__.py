"""The framework that all experiments share: measuring, JSON documents, tables and pictures.

An experiment is a module of `tools/` that builds an `Experiment` and passes it to `main`: its
columns and panels, a function that measures and one that summarizes the rows in sentences. Read
`experiment` first; `docs/lab.md` has a complete one.

`command` is the command line. `document` builds, saves and reads JSON documents, which describe
the `machine` too; `document_validation` validates them, `result_folder` keeps the newest rows of
many, and `comparison` lists the differences between two. `table`, `terminal_tables`, `picture`
(with `log_axes`) and `page` present a document, `number_format` its numbers. Experiments measure
with `timing` (implementations timed against each other) and `latencies_and_costs` (of queries, of
long work). `bitmaps` builds pyroaring's bitmaps. `workloads` has the rows to write and the reads to
replay, `stores` the indexes and other stores to compare.
"""

from tools.lab.command import main
from tools.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row

__all__ = ["Experiment", "LabRun", "Panel", "ResultColumn", "Row", "main"]
