"""Keys of security: what is served as they ask, and what is refused because it cannot be.

A bookie that is asked to authenticate its clients, or to keep others out, is never served
without that.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import IllegalOperation
from bkstore.formats.syntax.configuration import Configuration

_SASL_FACTORY = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
_PEM_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"


class TlsFiles(NamedTuple):
    """The PEM files of a server: its certificate, its key, and those of clients where they must
    show a certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None


def check_security(conf: Configuration) -> None:
    """Raise `IllegalOperation` for what a file asks for and is not served, but for SASL and TLS."""
    _refuse(conf, "authorizedRoles", "roles of certificates are not looked at")
    if conf.boolean("zkEnableSecurity", False):
        raise _refusal("zkEnableSecurity", "nodes are made that everybody may change")
    if conf.boolean("httpServerEnabled", False) and conf.boolean("httpServerTlsEnable", False):
        raise _refusal("httpServerTlsEnable", "the HTTP admin has no TLS")
    permitted = [user for user in conf.strings("permittedStartupUsers") if user]
    if permitted and getpass.getuser() not in permitted:
        raise _refusal("permittedStartupUsers", f"{getpass.getuser()} is not among them")


def asks_for_sasl(conf: Configuration) -> bool:
    """Return whether clients must authenticate by SASL; `IllegalOperation` for other providers."""
    factory = conf.string("bookieAuthProviderFactoryClass", None)
    if factory and factory != _SASL_FACTORY:
        raise _refusal("bookieAuthProviderFactoryClass", f"{factory} is not served, SASL is")
    return bool(factory)


def configured_tls(conf: Configuration) -> TlsFiles | None:
    """Return the files of START_TLS, None where none is asked for.

    Raises `IllegalOperation` where it is asked for with what is not served: stores of Java,
    passwords, a choice of protocols or ciphers.
    """
    factory = conf.string("tlsProviderFactoryClass", None)
    if not factory:
        return None
    if factory != _PEM_FACTORY:
        raise _refusal("tlsProviderFactoryClass", f"{factory} is not served")
    for key in ("tlsEnabledProtocols", "tlsEnabledCipherSuites"):
        _refuse(conf, key, "which of them are taken cannot be chosen")
    if conf.string("tlsKeyStoreType", "JKS") != "PEM":
        raise _refusal("tlsKeyStoreType", "keys are read from PEM files (tlsKeyStoreType=PEM)")
    _refuse(conf, "tlsKeyStorePasswordPath", "a key with a password is not read")
    certificate, private = _file(conf, "tlsCertificatePath"), _file(conf, "tlsKeyStore")
    if not conf.boolean("tlsClientAuthentication", False):
        return TlsFiles(certificate, private, None)
    if conf.string("tlsTrustStoreType", "JKS") != "PEM":
        raise _refusal(
            "tlsTrustStoreType", "certificates are read from PEM files (tlsTrustStoreType=PEM)"
        )
    _refuse(conf, "tlsTrustStorePasswordPath", "certificates with a password are not read")
    return TlsFiles(certificate, private, _file(conf, "tlsTrustStore"))


def _file(conf: Configuration, key: str) -> Path:
    name = conf.string(key, None)
    if not name:
        raise _refusal(key, "it names no file, and tlsProviderFactoryClass needs it")
    return Path(name)


def _refuse(conf: Configuration, key: str, why: str) -> None:
    if any(conf.strings(key)):
        raise _refusal(key, why)


def _refusal(key: str, why: str) -> IllegalOperation:
    return IllegalOperation(
        f"{key}: {why}; a bookie is not served with less than its conf asks for"
    )
