"""The state of a bookie's ledgers as recorded conversations tell it: made, and compared."""

from __future__ import annotations

from typing import Any

from bkstore.formats.entry import Coder, Entry
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import JournalOptions
from tests.golden.directories.operation_replay import payload, payload_size

__all__ = ["JOURNAL", "KEY", "prepare", "record_of", "states_differing"]

SEED = 4242
KEY = bytes.fromhex("615ed0089f3a2db1c1f7182910edc04428396d09")
CODER = Coder("CRC32C", "golden")
JOURNAL = JournalOptions(preallocate=64 << 10)


def record_of(ledger: int, entry: int) -> bytes:
    """Return the record that the payload rule makes."""
    sizes = [payload_size(ledger, at) for at in range(entry + 1)]
    data = payload(ledger, entry, SEED, sizes[-1])
    return CODER.encode(Entry(ledger, entry, entry - 1, sum(sizes), data))


def runs_of(bookie: Bookie, ledger: int) -> list[list[int]]:
    """Return the entries of a ledger as the recordings show them."""
    return [[int(first), int(last)] for first, last in bookie.availability(ledger).ranges()]


def prepare(bookie: Bookie, wanted: dict[str, Any]) -> None:
    """Bring a ledger into a recorded state."""
    ledger = wanted["ledger"]
    if not wanted["exists"]:
        return
    key = bytes.fromhex(wanted["master_key_hex"])
    bookie.storage.open_ledger(ledger, key)
    here = set(bookie.entries(ledger).tolist())
    for first, last in wanted["entries"]:
        for entry in range(first, last + 1):
            if entry not in here:
                bookie.add_entry(record_of(ledger, entry), key, recovery=True, sync=False)
    state = bookie.state(ledger)
    if wanted["fenced"] is True and not state.fenced:
        bookie.fence(ledger, key)
    lac = wanted["explicit_lac_hex"]
    if lac is not None and not lac.startswith("!"):
        bookie.set_explicit_lac(ledger, bytes.fromhex(lac), key, sync=False)
    if wanted.get("limbo") and not state.limbo:
        bookie.storage.set_limbo(ledger)


def told(bookie: Bookie, recorded: dict[str, Any]) -> dict[str, Any]:
    """Return a ledger's state as a recording tells it."""
    ledger = recorded["ledger"]
    if ledger < 0 or not bookie.ledger_exists(ledger):
        return {"ledger": ledger, "exists": False}
    state = bookie.state(ledger)
    lac = None if state.explicit_lac is None else state.explicit_lac.hex()
    unknown = "!DataUnknownException"
    return {
        "ledger": ledger,
        "exists": True,
        "master_key_hex": state.master_key.hex(),
        "fenced": unknown if state.limbo and not state.fenced else state.fenced,
        "explicit_lac_hex": unknown if state.limbo else lac,
        "entries": runs_of(bookie, ledger),
        "limbo": state.limbo if recorded.get("limbo") is not None else None,
    }


def states_differing(bookie: Bookie, when: str, states: list[dict[str, Any]]) -> list[Any]:
    """Return the ledgers that are not in a recorded state: what differs there and here."""
    found = []
    for there in states:
        here = told(bookie, there)
        if not there["exists"] or not here["exists"]:
            there, here = ({"exists": each["exists"]} for each in (there, here))
        if any(there[name] != here[name] for name in there) and there.get("ledger", 0) >= 0:
            found.append((when, there, here))
    return found
