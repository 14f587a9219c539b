"""When the views of a session are those of other inputs, without a session."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.offline.analyses import Inputs, Options
from bkstore.spark.analysis import _SessionViews

pytestmark = pytest.mark.spark


def test_views_are_of_their_inputs() -> None:
    """A session's views are used again for the same dump, metadata and second dump, whatever is
    asked of them; another one of any of the three, or none, has views of its own."""
    nothing: Any = None
    dump, metadata, other, another = (object() for _ in range(4))

    def inputs(*three: Any, **fields: Any) -> Inputs:
        return Inputs(*three, **fields)

    mine = _SessionViews(inputs(dump, metadata, other), nothing)
    alone = _SessionViews(inputs(dump), nothing)

    assert mine.has_inputs(inputs(dump, metadata, other))
    assert mine.has_inputs(inputs(dump, metadata, other, options=Options(top=3)))
    for three in (
        (another, metadata, other),
        (dump, another, other),
        (dump, metadata, another),
        (dump, None, other),
        (dump, metadata, None),
        (dump, other, metadata),
        (other, metadata, dump),
    ):
        assert not mine.has_inputs(inputs(*three))
    assert alone.has_inputs(inputs(dump))
    assert not alone.has_inputs(inputs(dump, metadata))
    assert not alone.has_inputs(inputs(dump, None, dump))
