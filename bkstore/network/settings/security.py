"""Keys of security, honored or refused: no bookie serves with less protection than configured."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import IllegalOperation
from bkstore.formats.syntax.configuration import Configuration

_SASL_FACTORY = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
_PEM_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"


class TlsFiles(NamedTuple):
    """A server's PEM files: certificate, key, and, if clients need certificates, their CA's."""

    certificate: Path
    key: Path
    client_ca: Path | None


def check_security(conf: Configuration) -> None:
    """Raise `IllegalOperation` for security settings that are not supported, SASL and TLS aside."""
    _refuse_if_set(conf, "authorizedRoles", "roles in certificates are not checked")
    if conf.boolean("zkEnableSecurity", False):
        raise _refusal("zkEnableSecurity", "bkstore creates nodes that everybody may change")
    if conf.boolean("httpServerEnabled", False) and conf.boolean("httpServerTlsEnable", False):
        raise _refusal("httpServerTlsEnable", "the HTTP admin has no TLS")
    permitted_users = [user for user in conf.strings("permittedStartupUsers") if user]
    if permitted_users and getpass.getuser() not in permitted_users:
        raise _refusal("permittedStartupUsers", f"{getpass.getuser()} is not one of them")


def requires_sasl(conf: Configuration) -> bool:
    """Return whether clients must use SASL; raises `IllegalOperation` for other providers."""
    factory = conf.string("bookieAuthProviderFactoryClass", None)
    if factory and factory != _SASL_FACTORY:
        reason = f"{factory} is not supported, only SASL is"
        raise _refusal("bookieAuthProviderFactoryClass", reason)
    return bool(factory)


def read_tls(conf: Configuration) -> TlsFiles | None:
    """Return the files of START_TLS, None if the file does not enable it. Raises `IllegalOperation`
    for Java key stores, passwords, and a choice of protocols or ciphers."""
    factory = conf.string("tlsProviderFactoryClass", None)
    if not factory:
        return None
    if factory != _PEM_FACTORY:
        raise _refusal("tlsProviderFactoryClass", f"{factory} is not supported")
    for key in ("tlsEnabledProtocols", "tlsEnabledCipherSuites"):
        _refuse_if_set(conf, key, "a choice of them is not supported")
    if conf.string("tlsKeyStoreType", "JKS") != "PEM":
        reason = "only keys in PEM files are supported (tlsKeyStoreType=PEM)"
        raise _refusal("tlsKeyStoreType", reason)
    _refuse_if_set(conf, "tlsKeyStorePasswordPath", "a key with a password is not supported")
    certificate, private_key = (
        _required_path(conf, "tlsCertificatePath"),
        _required_path(conf, "tlsKeyStore"),
    )
    if not conf.boolean("tlsClientAuthentication", False):
        return TlsFiles(certificate, private_key, None)
    if conf.string("tlsTrustStoreType", "JKS") != "PEM":
        reason = "only certificates in PEM files are supported (tlsTrustStoreType=PEM)"
        raise _refusal("tlsTrustStoreType", reason)
    reason = "certificates with a password are not supported"
    _refuse_if_set(conf, "tlsTrustStorePasswordPath", reason)
    return TlsFiles(certificate, private_key, _required_path(conf, "tlsTrustStore"))


def _required_path(conf: Configuration, key: str) -> Path:
    path = conf.string(key, None)
    if not path:
        raise _refusal(key, "names no file, but tlsProviderFactoryClass requires one")
    return Path(path)


def _refuse_if_set(conf: Configuration, key: str, reason: str) -> None:
    if any(conf.strings(key)):
        raise _refusal(key, reason)


def _refusal(key: str, reason: str) -> IllegalOperation:
    rule = "a bookie is not served with less security than its conf requires"
    return IllegalOperation(f"{key}: {reason}; {rule}")
