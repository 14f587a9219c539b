"""SASL authentication of clients to bookies by DIGEST-MD5 (RFC 2831).

`digest_md5` has both sides of the mechanism: read it first. `directives` parses its messages;
`credentials` has the users of a bookie and the user of a client; `jaas` reads both from the file
that BookKeeper uses. `plugins` has the plugin names in AUTH messages. Only `jaas` reads a file,
nothing here uses a socket; `docs/formats/wire.md` describes the messages.
"""

from bkstore.wire.sasl.credentials import SaslUser, SaslUsers
from bkstore.wire.sasl.digest_md5 import DigestClient, DigestServer

__all__ = ["DigestClient", "DigestServer", "SaslUser", "SaslUsers"]
