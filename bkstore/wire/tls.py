"""What START_TLS goes on with: certificates from files, by the standard library's ssl."""

from __future__ import annotations

import ssl
from pathlib import Path

from bkstore.arguments import path as as_path
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import StrPath
from bkstore.files.opening import opened


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
    _show(context, certificate, key)
    if client_ca is not None:
        _trust(context, as_path("client_ca", client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(
    ca: StrPath | None = None,
    certificate: StrPath | None = None,
    key: StrPath | None = None,
    *,
    check_host: bool = True,
) -> ssl.SSLContext:
    """Return the context of a client that checks what a bookie shows; TLS 1.2 or later.

    `ca` is whom to trust (PEM), None the certificates that the system trusts. `certificate` and
    `key` are shown to bookies that ask, as of `server_tls`. Without `check_host` a certificate
    may name another host: so do real clients unless `tlsHostnameVerificationEnabled` is set.
    Raises as `server_tls`; a `key` without its certificate is `InvalidArgument`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_host
    if ca is None:
        context.load_default_certs()
    else:
        _trust(context, as_path("ca", ca))
    if certificate is not None:
        _show(context, certificate, key)
    elif key is not None:
        raise InvalidArgument("key needs certificate")
    return context


def _show(context: ssl.SSLContext, certificate: StrPath, key: StrPath | None) -> None:
    shown = as_path("certificate", certificate)
    secret = None if key is None else as_path("key", key)
    for each in (shown, secret):
        if each is not None:
            _check_readable(each)
    try:
        context.load_cert_chain(shown, secret, password=b"")
    except (ssl.SSLError, ValueError) as error:
        names = str(shown) if secret is None else f"{shown} and {secret}"
        raise InvalidArgument(f"{names}: no certificate with its key: {error}") from error


def _trust(context: ssl.SSLContext, trusted: Path) -> None:
    _check_readable(trusted)
    try:
        context.load_verify_locations(trusted)
    except ssl.SSLError as error:
        raise InvalidArgument(f"{trusted}: no certificates: {error}") from error


def _check_readable(file: Path) -> None:
    with opened(file):  # whose error names the file; that of ssl does not
        pass
