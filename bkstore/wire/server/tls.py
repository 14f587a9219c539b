"""What START_TLS goes on with: certificates from files, by the standard library's ssl."""

from __future__ import annotations

import ssl

from bkstore.arguments import path as as_path
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import StrPath
from bkstore.files.opening import opened

__all__ = ["server_tls"]


def server_tls(
    certificate: StrPath, key: StrPath | None = None, client_ca: StrPath | None = None
) -> ssl.SSLContext:
    """Return the context of a server that shows a certificate; TLS 1.2 or later.

    Files are PEM; `certificate` may have its chain, and the key too where `key` is None. With
    `client_ca` clients must show a certificate of it. `InvalidArgument` names a file that is not
    what it should be, `OSError` one that cannot be read. A key with a password is refused.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    shown = as_path("certificate", certificate)
    secret = None if key is None else as_path("key", key)
    for each in (shown, secret):
        if each is not None:
            with opened(each):  # whose error names the file; that of ssl does not
                pass
    try:
        context.load_cert_chain(shown, secret, password=b"")
    except (ssl.SSLError, ValueError) as error:
        names = str(shown) if secret is None else f"{shown} and {secret}"
        raise InvalidArgument(f"{names}: no certificate with its key: {error}") from error
    if client_ca is not None:
        trusted = as_path("client_ca", client_ca)
        with opened(trusted):
            pass
        try:
            context.load_verify_locations(trusted)
        except ssl.SSLError as error:
            raise InvalidArgument(f"{trusted}: no certificates: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
