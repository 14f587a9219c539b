"""Every call of rescue."""

from __future__ import annotations

import pytest

from tests.strain.commands import RESCUING
from tests.strain.every_call.judging import judge_every_call
from tests.strain.failing_calls import GROUPS, Machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", RESCUING)
def test_every_call(machine: Machine, inputs: dict[str, str], name: str, group: str) -> None:
    """The first and the last of all calls that are alike, with each errno, once and for good."""
    assert [] == judge_every_call(machine, inputs, name, group)
