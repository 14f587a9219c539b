"""Rescue: recover ledgers from the disks of a cluster that no longer runs, from any sound copies.

`RescueJob` in `rescue_job` has the steps: read it first. The room `disks` finds all copies;
`copy_choice` orders the copies of an entry, `ledger_end` decides where an open ledger ends,
`ledger_plans` what can be rescued, `inferred_metadata` makes metadata from disks, `rescued_records`
reads it, and `account` states what is lost. The room `outputs` writes it; `checkpoints` and
`staging` are what an interrupted rescue leaves for the next one.
"""

from bkstore.rescue.account import AccountRow, account_tables, summarize
from bkstore.rescue.disks.sources import SourceBookie, open_source
from bkstore.rescue.disks.wanted_ledgers import LedgerSecret, WantedLedgers, read_wanted_ledgers
from bkstore.rescue.inferred_metadata import InferredLedgers, infer_metadata
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.rescue_job import RescueJob, RescueOutput
from bkstore.rescue.staging import registers_in, staged_output

__all__ = [
    "AccountRow",
    "InferredLedgers",
    "LedgerPlan",
    "LedgerSecret",
    "RescueJob",
    "RescueOutput",
    "SourceBookie",
    "WantedLedgers",
    "account_tables",
    "infer_metadata",
    "open_source",
    "read_wanted_ledgers",
    "registers_in",
    "staged_output",
    "summarize",
]
