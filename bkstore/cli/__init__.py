"""The command line: one module per command, each a thin layer over a library call.

`commands` lists the commands, in groups, with an example of each; `main` runs one, and turns errors
into one line and an exit code: read these two first. `bookie` has the commands that read one
bookie's directories, `datasets` those that make, load and analyze dumps, `maintenance` those that
check or rewrite directories, `rocksdb` the one that shows RocksDB's files, `pulsar` those for
Pulsar's ledgers, `repair` the one that repairs running clusters, `rescue` the one for the disks of
a dead cluster; `audit` (with `audit_settings`), `metadata`, `streams`, `serve` (with `serve_admin`,
`server_process`), `ensemble` and `completion` are single commands, `trials` has the demo and the
lab. `server_conf` applies a `bk_server.conf` to `serve`. `terminal` has options, formats, progress
and secrets for all, `screen` the tables for people, `owners` filters by topic and columns of
owners; `fleet` reads the directories of many bookies side by side.
"""

__all__ = ["main"]
