"""ClientOptions: settings of a client, with BookKeeper's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bkstore.arguments import boolean, check_compat, check_fields, integer
from bkstore.storage.batch_limits import DEFAULT_MAX_SIZE


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Settings of a client, with BookKeeper's defaults (`ClientConfiguration`).

    `batch_reads` is `batchReadEnabled`; `max_frame` is `nettyMaxFrameSizeBytes`: no record and no
    batch is larger. With `delay_ensemble_change` (`delayEnsembleChange`) a failed bookie is
    replaced only if fewer than A others stored the entry. A writer over a network has at most about
    `window` entries in flight. ``compat="bookkeeper"``: deviations as in `docs/parity.md`.
    """

    batch_reads: bool = True
    max_frame: int = DEFAULT_MAX_SIZE
    delay_ensemble_change: bool = False
    window: int = 1024
    compat: Literal["bookkeeper"] | None = None

    def __post_init__(self) -> None:
        check_fields(self, _FIELD_CHECKS)


_FIELD_CHECKS = {
    "batch_reads": boolean,
    "max_frame": integer(1, 2**31 - 1),
    "delay_ensemble_change": boolean,
    "window": integer(1, 1 << 20),
    "compat": check_compat,
}
