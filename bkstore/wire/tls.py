"""TLS contexts for START_TLS, with certificates from files."""

from __future__ import annotations

import ssl
from pathlib import Path

from bkstore.arguments import path as as_path
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import StrPath
from bkstore.files.opening import open_for_reading


def server_tls(
    certificate: StrPath, key: StrPath | None = None, client_ca: StrPath | None = None
) -> ssl.SSLContext:
    """Return the context of a server with this certificate; TLS 1.2 or later.

    Files are PEM. `certificate` may include its chain, and must include the key if `key` is None.
    With `client_ca`, clients must have a certificate that it issued. Raises `InvalidArgument` for
    an invalid file or a key with a password, `OSError` for an unreadable one; both name it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, certificate, key)
    if client_ca is not None:
        _load_trusted(context, as_path("client_ca", client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(
    ca: StrPath | None = None,
    certificate: StrPath | None = None,
    key: StrPath | None = None,
    *,
    check_host: bool = True,
) -> ssl.SSLContext:
    """Return the context of a client that verifies bookies' certificates; TLS 1.2 or later.

    `ca` has the trusted certificates (PEM); None trusts the system's. `certificate` and `key`, as
    in `server_tls`, are for bookies that require them. Without `check_host` a certificate may be
    for another host, as for BookKeeper's clients unless `tlsHostnameVerificationEnabled` is set.
    Raises what `server_tls` raises, and `InvalidArgument` for a `key` without `certificate`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_host
    if ca is None:
        context.load_default_certs()
    else:
        _load_trusted(context, as_path("ca", ca))
    if certificate is not None:
        _load_certificate(context, certificate, key)
    elif key is not None:
        raise InvalidArgument("a key needs a certificate")
    return context


def _load_certificate(context: ssl.SSLContext, certificate: StrPath, key: StrPath | None) -> None:
    """Add a certificate and its key (None: in the same file) to a context."""
    certificate_path = as_path("certificate", certificate)
    key_path = None if key is None else as_path("key", key)
    for file in (certificate_path, key_path):
        if file is not None:
            _check_readable(file)
    try:
        # an empty password, so that OpenSSL does not ask for one on the terminal
        context.load_cert_chain(certificate_path, key_path, password=b"")
    except (ssl.SSLError, ValueError) as error:
        names = str(certificate_path) if key_path is None else f"{certificate_path} and {key_path}"
        raise InvalidArgument(f"{names}: not a certificate and its key: {error}") from error


def _load_trusted(context: ssl.SSLContext, trusted: Path) -> None:
    """Trust the certificates of a file; raises if it cannot be read."""
    _check_readable(trusted)
    try:
        context.load_verify_locations(trusted)
    except ssl.SSLError as error:
        raise InvalidArgument(f"{trusted}: cannot load certificates: {error}") from error


def _check_readable(file: Path) -> None:
    with open_for_reading(file):  # its error names the file, unlike that of ssl
        pass
