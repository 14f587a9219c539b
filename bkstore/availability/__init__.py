"""Availability: which entries of a ledger are here, in BP-34's condensed form.

`entry_set` has `Availability`, an immutable set of entry ids kept as sequence groups: read it
first. Below it: `sequence_groups` (the representation), `grouping` (its canonical form),
`from_entries` (from ids and masks), `many_sets` (the same for many sets at once), `inputs` (what
callers hand in), `set_operations` over `patterns`, `codec` (bytes). `bookkeeper_compat` has the
answers of BookKeeper's own class, defects included, behind ``compat="bookkeeper"``.
"""

from bkstore.availability import bookkeeper_compat
from bkstore.availability.codec import Encoding
from bkstore.availability.entry_set import Availability, Compat

__all__ = ["Availability", "Compat", "Encoding", "bookkeeper_compat"]
