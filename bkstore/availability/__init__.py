"""Availability: which entries of a ledger a bookie has, in BP-34's condensed form.

Read `entry_set` first: `Availability` is an immutable set of entry ids, stored as sequence groups.
It uses `sequence_groups` (the representation), `grouping` (its canonical form), `from_entries`
(from ids and masks), `many_sets` (many sets at once), `set_operations` with `stripe_operations`,
and `codec` (bytes). `entry_text` formats a set for people. `bookkeeper_compat` answers as
BookKeeper's own class, defects included.
"""

from bkstore.availability import bookkeeper_compat
from bkstore.availability.codec import Encoding
from bkstore.availability.entry_set import Availability, Compat

__all__ = ["Availability", "Compat", "Encoding", "bookkeeper_compat"]
