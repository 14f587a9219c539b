"""LookupResult: the answer of a stream lookup, and the interface of its observers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from bkstore.streams.lookup.answer_chain import AnswerObject
from bkstore.streams.lookup.stats import QueryStats


@dataclass(frozen=True)
class LookupResult:
    """The answer of a lookup: `objects` ascend by offset without a gap.

    The first may begin before the requested start, the last end after the end. `covered_to` is the
    end of the last, None if there is none; `satisfied` whether the limit or the end was reached.
    """

    status: Literal["ok", "invalid"]
    objects: list[AnswerObject]
    covered_to: int | None
    satisfied: bool
    stats: QueryStats = field(compare=False)

    @property
    def kind(self) -> str:
        """The outcome: "invalid" arguments, "empty", "complete", or "prefix": ended too early."""
        if self.status == "invalid":
            return "invalid"
        if not self.objects:
            return "empty"
        return "complete" if self.satisfied else "prefix"


class LookupObserver(Protocol):
    """Is notified of each lookup, for example for metrics. An exception fails the lookup."""

    def observe(self, result: str, stats: QueryStats) -> None:
        """Record one lookup; `result` is one of `LookupTotals.RESULTS`."""
        ...
