"""What a `bk_server.conf` asks of a bookie that serves, as options of the classes that make one.

`keys` declares which keys are honoured, by which option, with BookKeeper's type and default, and
which are not; read it first. `server_settings` has `ServerSettings`, all options of a file;
`security` refuses what would be served with less protection than the file asks for;
`interfaces` finds the address of a network interface. Page: `docs/server-conf.md`.
"""

from bkstore.network.settings.server_settings import ServerSettings

__all__ = ["ServerSettings"]
