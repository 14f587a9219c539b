"""RepairOptions: settings of a repair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from bkstore.arguments import (
    boolean,
    bytes_like,
    check_fields,
    choice,
    instance,
    integer,
    number,
    optional,
)
from bkstore.cluster.audit import AuditOptions
from bkstore.formats.entry.digest import DigestType


@dataclass(frozen=True, kw_only=True)
class RepairOptions:
    """Settings of a repair; invalid ones raise `InvalidArgument`.

    `password` and `digest_type` are used for ledgers whose metadata have none. With `recover` an
    open ledger whose last segment names a bookie that is gone is recovered, which fences its writer
    and closes it. With `replace_read_only` a read-only bookie that lacks entries is replaced; else
    it is left as it is, because it takes no entries. `parallel` ledgers are repaired at a time, and
    at most `bytes_per_second` bytes of records are copied in a second (None = no limit). `audit`
    are the settings of the audits before a plan. With `verify` every copy of every entry is read,
    at most `bytes_per_second`, and one whose digest does not match counts as missing.
    """

    password: bytes | None = field(default=None, repr=False)
    digest_type: str | None = None
    recover: bool = False
    replace_read_only: bool = False
    verify: bool = False
    parallel: int = 4
    bytes_per_second: float | None = None
    audit: AuditOptions = field(default_factory=lambda: AuditOptions(rechecks=0))

    def __post_init__(self) -> None:
        check_fields(self, _FIELD_CHECKS)


_FIELD_CHECKS = {
    "password": optional(bytes_like),
    "digest_type": choice(*get_args(DigestType), None),
    "recover": boolean,
    "replace_read_only": boolean,
    "verify": boolean,
    "parallel": integer(1, 1024),
    "bytes_per_second": optional(number(1)),
    "audit": instance(AuditOptions),
}
