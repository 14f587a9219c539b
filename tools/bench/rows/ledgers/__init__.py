"""The rows about ledger storage: reads, writes, memory, and the cost of a scope."""

__all__ = ["memory", "reads", "scope_cost", "writes"]
