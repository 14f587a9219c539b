"""The experiments of the package by name, and experiments in files of the user's own."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from bkstore.errors import InvalidArgument
from bkstore.lab.experiment import Experiment

QUESTIONS = {
    "layouts": "Which layout of an index for which ledgers?",
    "deletes": "What do deleted ledgers leave in RocksDB, and what takes it away?",
    "pages": "Which page size for index files, and how large a pool of pages?",
    "keys": "What do order and width of keys cost, and 128-bit ledger ids?",
    "blooms": "What does a bloom filter cost, and how often does it give a false positive?",
    "availability": "In which form should a bookie say which entries it has?",
    "cache": "How far should a bookie read ahead, and what does its write cache answer?",
    "batch": "How large should a batch of reads or adds be?",
    "lookups": "How many objects does a look-up load, by which strategy?",
    "losses": "How many entries does a cluster lose over years, and which repair prevents it?",
    "workload": "What does an index or a storage bear, and how late are its slowest answers?",
}
"""The question of each experiment, by its name: listing them imports none."""


def load_experiment(name: str) -> Experiment:
    """Return the experiment of a name, or of a file if `name` ends with ``.py`` or has a slash.

    A file is run with its directory first in `sys.path`, as Python runs a script; its attribute
    `EXPERIMENT` is the experiment. Its own exceptions are not caught. Raises
    `InvalidArgument` for an unknown name, a file that cannot be read, and one without `EXPERIMENT`.
    """
    if "/" in name or name.endswith(".py"):
        return _load_file(Path(name))
    if name not in QUESTIONS:
        known = ", ".join(QUESTIONS)
        raise InvalidArgument(f"no experiment {name!r}; there are {known}, and files (./{name}.py)")
    experiment = import_module(f"bkstore.lab.experiments.{name}").EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment


def _load_file(path: Path) -> Experiment:
    """Return the `EXPERIMENT` of a Python file, which runs as a module of its own."""
    if not path.is_file():
        raise InvalidArgument(f"{path}: no such file")
    module_name = f"experiment_{path.stem}"  # the prefix keeps it from hiding another module
    spec = spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{path}: not a Python file: its name does not end with .py")
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[module_name] = module  # dataclasses look up their module here
    spec.loader.exec_module(module)
    experiment = getattr(module, "EXPERIMENT", None)
    if not isinstance(experiment, Experiment):
        raise InvalidArgument(f"{path}: it has no EXPERIMENT, an object of bkstore.lab.Experiment")
    return replace(experiment, command=f"bkstore lab {path.name}")
