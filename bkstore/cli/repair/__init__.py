"""`bkstore repair`: plans and repairs the missing replicas of a running cluster.

`repair` is the command; `options` declares its options and turns them into settings, and
`service` repeats the repair (``--every``).
"""

__all__ = ["options", "repair", "service"]
