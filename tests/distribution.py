"""Which tests a worker of pytest-xdist runs one after another, and what is begun first.

A file is run by one worker, for its fixtures' sake, as with `--dist loadfile`; tests with Spark
are run by the same one, which starts Java once. What takes longest is begun first: a long file
that is begun last is waited for by all other workers.
"""

from __future__ import annotations

from typing import Any

import pytest

COLLECTED = pytest.StashKey[list[str]]()
"""The ids of all tests that a run has collected, those included that it leaves out."""

SPARK = "tests with Spark"
WITH_SPARK = (
    "tests/cli/test_demo.py::",
    "tests/docs/test_docs.py::test_page_runs_with_spark",
    "tests/spark/",
)

SECONDS = {
    SPARK: 120,
    "tests/tools/test_bench.py": 75,
    "tests/crash/test_storages.py": 70,
    "tests/report/test_browser.py": 60,
    "tests/docs/test_docs.py": 40,
    "tests/tools/test_experiments.py": 30,
    "tests/offline/dump/test_resume.py": 20,
    "tests/testing/test_plugin.py": 20,
    "tests/testing/ensemble/test_ensemble.py": 20,
    "tests/tools/test_site.py": 15,
    "tests/crash/test_indexes.py": 15,
    "tests/crash/test_killed_bookie.py": 15,
    "tests/crash/test_killed_databases.py": 15,
    "tests/offline/dump/test_worker_processes.py": 15,
    "tests/testing/ensemble/test_command.py": 10,
}
"""What the longest took in a `make test` on two cores; of others it does not matter when."""


def group_of(nodeid: str) -> str:
    """Return the name of what a test is run together with: its file, or all of Spark."""
    return SPARK if nodeid.startswith(WITH_SPARK) else nodeid.partition("::")[0]


def scheduling(config: Any, log: Any) -> Any:
    """Return the scheduler of a run by `--dist loadfile`; None for other distributions."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        """Groups by `group_of`, the longest first."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            longest = max(self.workqueue, key=lambda name: SECONDS.get(name, 0))
            self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log)
