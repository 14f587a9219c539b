"""The lab: experiments with storage layouts, and the framework to write your own.

`bkstore lab NAME` runs an experiment of `experiments`, `bkstore lab FILE` one of yours: a module
whose `EXPERIMENT` is an `Experiment`: its columns and panels, a function that measures and one that
summarizes the rows in sentences. Read `experiment` first; `docs/lab.md` has a complete one.

`catalog` finds experiments by name or file, `command` is their command line, `progress` shows how
far a measurement is, `number_format` formats figures. Measurements use `measuring` (time, CPU and
bytes of implementations and queries), `workloads` (rows to write, reads to replay), `stores`
(indexes and other stores to compare), `load_generator` (threads with a mix of operations) and
`simulation` (years of clusters that lose replicas).
`documents` saves results as JSON and compares them, `presentation` shows them as tables, pictures
and pages.
"""

from bkstore.lab.command import main
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row

__all__ = ["Experiment", "LabRun", "Panel", "ResultColumn", "Row", "main"]
