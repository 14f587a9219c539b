"""The machine that commands run on, and what they read there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.strain.commands import make_inputs
from tests.strain.every_call.judging import digests
from tests.strain.failing_calls import Machine, compiler


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Return a machine with inputs."""
    if compiler() is None:
        pytest.skip("no C compiler here")
    made = Machine(tmp_path_factory.mktemp("strain"))
    make_inputs(made.top / "input")
    yield made
    made.close()


@pytest.fixture(scope="module")
def inputs(machine: Machine) -> dict[str, str]:
    """Return a digest of each input."""
    return digests(machine.top / "input")
