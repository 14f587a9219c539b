"""The operations of a load, and the shares that each has of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bkstore.counts import format_count
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array

OPERATIONS = {
    "read": "one entry",
    "write": "one entry, the next of a ledger",
    "batch": "a batch of entries in a row, read by one call",
    "add": "a batch of entries, the next of a ledger, written by one call",
    "delete": "a whole ledger, the oldest",
}
"""The operations by name, and what each of them reads, writes or deletes."""


class OperationMix(NamedTuple):
    """Operations, and the probability of each."""

    names: tuple[str, ...]
    shares: tuple[float, ...]

    @classmethod
    def parse(cls, names: str, shares: str | None = None) -> OperationMix:
        """Return the mix of texts such as ``read,write`` and ``80:20``; all are equally likely
        without `shares`. Raises `InvalidArgument` for anything else.

        >>> OperationMix.parse("read,write", "80:20")
        OperationMix(names=('read', 'write'), shares=(0.8, 0.2))
        """
        operations = tuple(names.split(","))
        unknown = [operation for operation in operations if operation not in OPERATIONS]
        if unknown:
            known = ", ".join(OPERATIONS)
            raise InvalidArgument(f"--ops {names}: no operation {unknown[0]!r}; there are {known}")
        if len(set(operations)) != len(operations):
            raise InvalidArgument(f"--ops {names}: an operation is given twice")
        weights = _parse_weights(shares) if shares is not None else [1.0] * len(operations)
        if len(weights) != len(operations):
            raise InvalidArgument(
                f"--mix {shares}: {format_count(len(weights), 'share')} for "
                f"{format_count(len(operations), 'operation')} ({names})"
            )
        return cls(operations, tuple(weight / sum(weights) for weight in weights))

    def draw(self, count: int, rng: np.random.Generator) -> Int64Array:
        """Return the index of the operation in `names` of each of `count` steps, int64[count]."""
        drawn: Int64Array = rng.choice(len(self.names), count, p=self.shares)
        return drawn

    def __str__(self) -> str:
        """Return the mix as a sentence has it: ``80 % read, 20 % write``."""
        return ", ".join(
            f"{share:.3g} % {operation}" for operation, share in zip(self.names, self.percents)
        )

    @property
    def percents(self) -> Sequence[float]:
        """The probabilities in percent."""
        return [100 * share for share in self.shares]


def _parse_weights(text: str) -> list[float]:
    """Return the shares in a text such as ``80:20``."""
    try:
        weights = [float(part) for part in text.split(":")]
    except ValueError:
        weights = []
    if not weights or not all(0 < weight < float("inf") for weight in weights):
        raise InvalidArgument(f"{text}: not numbers above 0 with colons between, such as 80:20")
    return weights
