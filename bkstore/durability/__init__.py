"""Durability: missing replicas, and the violations that follow; for audits and analyses.

`missing_entries` finds what each bookie lacks of what it should hold, for many ledgers at once.
`violations` has the categories, and the rows of the `violations` table.
"""

__all__ = ["missing_entries", "violations"]
