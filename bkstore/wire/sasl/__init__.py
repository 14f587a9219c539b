"""SASL by DIGEST-MD5 (RFC 2831), by which a bookie asks its clients who they are.

`digest_md5` has both sides of the mechanism: read it first. `directives` is the syntax of its
messages, `credentials` has whom a bookie lets in and as whom a client comes; `jaas` reads both out
of the file that BookKeeper reads them from. `plugins` has the names in the messages that carry
the mechanism. Only `jaas` reads a file, nothing here uses a socket; the messages are on the page
`docs/formats/wire.md`.
"""

from bkstore.wire.sasl.credentials import SaslUser, SaslUsers
from bkstore.wire.sasl.digest_md5 import DigestClient, DigestServer

__all__ = ["DigestClient", "DigestServer", "SaslUser", "SaslUsers"]
