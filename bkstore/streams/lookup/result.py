"""LookupResult: the answer of a stream look-up, and who hears of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from bkstore.streams.lookup.answer_chain import AnswerObject
from bkstore.streams.lookup.stats import QueryStats


@dataclass(frozen=True)
class LookupResult:
    """The answer of a look-up.

    `objects` rise by offset without a gap; the first may begin before the start that was asked
    for, the last may end behind the end. `covered_to` is the end of the last one, None for an
    empty answer. `satisfied` is whether the limit or the end was reached.
    """

    status: Literal["ok", "invalid"]
    objects: list[AnswerObject]
    covered_to: int | None
    satisfied: bool
    stats: QueryStats = field(compare=False)

    @property
    def kind(self) -> str:
        """One of `LookupTotals.RESULTS`, "error" excepted."""
        if self.status == "invalid":
            return "invalid"
        if not self.objects:
            return "empty"
        return "complete" if self.satisfied else "prefix"


class LookupObserver(Protocol):
    """Hears of each look-up: metrics, say. What it raises fails the look-up."""

    def observe(self, result: str, stats: QueryStats) -> None:
        """Take note of one look-up; `result` is one of `LookupTotals.RESULTS`."""
        ...
