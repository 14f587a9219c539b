"""The data sets of the benchmark's rows, made from seeds: a module a kind."""

__all__ = ["audit_cluster", "dump_indexes", "entry_ids", "load_process", "records"]
