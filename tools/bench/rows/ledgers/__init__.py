"""The rows about ledger storage: reading, writing, memory, and what a scope costs."""

__all__ = ["memory", "reads", "scope_cost", "writes"]
