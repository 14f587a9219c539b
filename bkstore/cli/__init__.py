"""The command line: one module a command, each thin over a library call.

`main` has the list of commands and turns errors into one line and an exit code: read it first.
`bookie` has the commands about one bookie's directories, `datasets` those that make, load and
analyse dumps, `care` those that look after directories or rewrite them; `audit` (with
`audit_settings`), `metadata`, `streams`, `serve` (with `serve_admin`, `serving`), `ensemble`,
`completion` and `demo` (with `demo_data`) stand by themselves. `server_conf` has what a
`bk_server.conf` says of `serve`. What commands share (options, formats, progress, secrets) is in
`terminal`, tables for people in `screen`.
"""

__all__ = ["main"]
