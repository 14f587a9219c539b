"""`bkstore repair`: plans and repairs the missing replicas of a running cluster.

`repair` is the command; `repair_options` declares its options and turns them into settings, and
`repair_service` repeats the repair (``--every``).
"""

__all__ = ["repair", "repair_options", "repair_service"]
