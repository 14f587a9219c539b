"""Shared by the tests of benchmarks and of the lab: what pytest has loaded is not theirs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def keep_frozen() -> Iterator[None]:
    """Keep the collected tests out of the garbage collector where samples would bring them back.

    Between samples it would walk them all, which takes longer than the samples.
    """
    from bkstore.lab.measuring import timing

    kept = SimpleNamespace(collect=gc.collect, freeze=gc.freeze, unfreeze=lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "gc", kept)
        yield
