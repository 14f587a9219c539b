"""Each call of the command that draws fails; it is dear, so each kind of call with one errno."""

from __future__ import annotations

import pytest

from tests.strain.commands import DRAWING
from tests.strain.every_call.judging import judge_calls_in_turn
from tests.strain.failing_calls import GROUPS, Machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", DRAWING)
def test_calls_in_turn(machine: Machine, inputs: dict[str, str], name: str, group: str) -> None:
    """The first of all calls that are alike, with one errno after the other."""
    assert [] == judge_calls_in_turn(machine, inputs, name, group)
