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
    "tests/cli/trials/test_demo.py::",
    "tests/docs/test_docs.py::test_page_runs_with_spark",
    "tests/spark/",
)

SECONDS = {
    SPARK: 120,
    "tests/report/test_browser.py": 25,
    "tests/crash/test_storages.py": 25,
    "tests/storage/ledgers/test_conformance.py": 25,
    "tests/golden/test_rewrite.py": 25,
    "tests/cluster/store/zookeeper/test_server_restarts.py": 25,
    "tests/offline/analyses/test_local_engine.py": 20,
    "tests/offline/analyses/test_untrue_dumps.py": 20,
    "tests/docs/test_docs.py": 20,
    "tests/availability/test_availability.py": 20,
    "tests/cluster/store/zookeeper/test_each_operation.py": 20,
    "tests/storage/ledgers/test_batches_that_fail.py": 20,
    "tests/report/test_page.py": 20,
    "tests/testing/ensemble/test_ensemble.py": 20,
    "tests/testing/test_plugin.py": 20,
    "tests/lab/experiments/test_experiments.py": 15,
    "tests/cli/test_analyze.py": 15,
    "tests/golden/bytes/test_availability_and_schedule.py": 15,
    "tests/docs/test_tutorial_backend.py": 15,
    "tests/index/test_conformance.py": 15,
    "tests/index/test_copies_between_backends.py": 15,
    "tests/tools/test_peers.py": 15,
    "tests/offline/rewrite/test_salvage.py": 15,
    "tests/house/test_wheel.py": 15,
    "tests/house/test_startup.py": 15,
    "tests/everywhere/test_odd_files.py": 15,
    "tests/offline/dump/test_many_bookies.py": 15,
    "tests/offline/dump/test_worker_processes.py": 15,
    "tests/offline/dump/test_resume.py": 15,
    "tests/offline/rewrite/test_convert.py": 15,
    "tests/crash/test_indexes.py": 15,
    "tests/crash/test_killed_bookie.py": 15,
    "tests/crash/test_killed_databases.py": 15,
    "tests/tools/test_bench.py": 10,
    "tests/tools/site/test_site.py": 10,
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
