"""One Chromium, and one file of each sample, for all tests of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from bkstore.report import write_report
from tests.report.chromium import CHROMIUM, Browser, running_chromium
from tests.report.samples import SAMPLES


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Provide a running Chromium."""
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH (Debian has a package of that name)")
    with running_chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="session")
def sample_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that gives the file of a sample's report, written once."""
    folder = tmp_path_factory.mktemp("reports")

    @cache
    def write(name: str) -> Path:
        target, sample = folder / f"{name}.html", SAMPLES[name]()
        write_report(target, sample.tables, title=sample.title, source=sample.source)
        return target

    return write
