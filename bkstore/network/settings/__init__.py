"""Reading a `bk_server.conf`, as options of the classes of a bookie that serves.

`keys` declares the keys that are honored, each with its option and BookKeeper's type and default,
and those that are not: read it first. `server_settings` has `ServerSettings`, all options of a
file; `conflicting_keys` refuses combinations that BookKeeper refuses, `security` files that require
more protection than bkstore has; `interfaces` finds the address of a network interface. Page:
`docs/server-conf.md`.
"""

from bkstore.network.settings.server_settings import ServerSettings

__all__ = ["ServerSettings"]
