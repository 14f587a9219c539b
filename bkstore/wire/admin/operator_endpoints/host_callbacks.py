"""Controls: the callbacks of an admin into its host process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bkstore.wire.sasl import SaslUser

Stage = Literal["starting", "running", "stopping"]


def _return_false() -> bool:
    return False


@dataclass
class Controls:
    """The state and callbacks of an `AdminServer`'s host process. Assign them at any time.

    `read_only` returns whether writes are refused; `set_read_only` makes the bookie read-only until
    it is called with False, unless something else keeps it so. `check_sanity` writes a ledger to
    this bookie, reads and deletes it, or raises. Endpoints whose callback is None are refused.
    `sasl` is the user for requests to other bookies. `settings`, by their names in BookKeeper's
    configuration, are shown with those of the bookie, and must not include secrets.
    """

    stage: Stage = "running"
    read_only: Callable[[], bool] = _return_false
    set_read_only: Callable[[bool], object] | None = None
    check_sanity: Callable[[], object] | None = None
    sasl: SaslUser | None = None
    settings: dict[str, object] = field(default_factory=dict)
