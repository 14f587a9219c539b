"""The data sets of the benchmark's rows, generated from seeds."""

__all__ = ["audit_cluster", "dump_indexes", "entry_ids", "load_process", "records"]
