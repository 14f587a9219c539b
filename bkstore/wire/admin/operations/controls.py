"""Controls: what the process around an admin lets it ask and do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bkstore.wire.sasl import SaslUser

Stage = Literal["starting", "running", "stopping"]


def _never() -> bool:
    return False


@dataclass
class Controls:
    """What an `AdminServer` knows of the server beside it. Assign what there is, at any time.

    `stage` is where the process is between its start and its end. `read_only` returns whether
    writes are refused; `set_read_only` makes the bookie read-only until it is called with False,
    and then writable again unless something else keeps it from that. `check_sanity` writes a
    ledger on this bookie, reads and deletes it, and raises what went wrong. What is None cannot be
    done here. `sasl` is the user as whom other bookies are asked for their disk space, where they
    want one. `settings` are shown beside those of the bookie, under the names that they have in
    BookKeeper's configuration: no secrets.
    """

    stage: Stage = "running"
    read_only: Callable[[], bool] = _never
    set_read_only: Callable[[bool], object] | None = None
    check_sanity: Callable[[], object] | None = None
    sasl: SaslUser | None = None
    settings: dict[str, object] = field(default_factory=dict)
