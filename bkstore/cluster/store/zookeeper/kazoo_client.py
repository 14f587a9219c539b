"""The parts of kazoo that bkstore uses, and its settings for TLS; raises `MissingDependency` if it
is not installed."""

from __future__ import annotations

import os
import ssl
from typing import Any

from bkstore.errors import InvalidArgument, MissingDependency

try:
    from kazoo.client import KazooClient as KazooClient
    from kazoo.exceptions import (
        AuthFailedError,
        BadVersionError as BadVersionError,
        ConnectionLoss,
        InvalidACLError,
        KazooException as KazooException,
        NoAuthError,
        NodeExistsError as NodeExistsError,
        NoNodeError as NoNodeError,
        NotEmptyError as NotEmptyError,
        OperationTimeoutError,
        SessionExpiredError,
        SessionMovedError,
    )
    from kazoo.handlers.threading import KazooTimeoutError as KazooTimeoutError
    from kazoo.protocol.states import KazooState as KazooState
except ImportError as error:
    raise MissingDependency.of("kazoo", "zookeeper", "a metadata store in ZooKeeper") from error

UNCERTAIN_ERRORS = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, SessionMovedError)
"""Errors after which it is unknown whether the request was executed."""

FORBIDDEN_ERRORS = (NoAuthError, AuthFailedError, InvalidACLError)
"""Errors of access control lists."""

CA_VARIABLE = "BKSTORE_ZOOKEEPER_CA"
CERTIFICATE_VARIABLE = "BKSTORE_ZOOKEEPER_CERTIFICATE"
KEY_VARIABLE = "BKSTORE_ZOOKEEPER_KEY"


def tls_settings() -> dict[str, Any]:
    """Return kazoo's settings for TLS, as the environment states them: none without `CA_VARIABLE`,
    the PEM file of the certificates that are trusted. `CERTIFICATE_VARIABLE` and `KEY_VARIABLE` are
    the PEM files of a client that has to identify itself. The host name of the server is verified.
    Raises `InvalidArgument` for files that cannot be used, and for a client's without the CA.
    """
    ca, certificate, key = map(os.environ.get, (CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE))
    if not (ca or certificate or key):
        return {}
    if not ca:
        raise InvalidArgument(f"{CERTIFICATE_VARIABLE} and {KEY_VARIABLE} need {CA_VARIABLE}")
    if bool(certificate) != bool(key):
        raise InvalidArgument(f"{CERTIFICATE_VARIABLE} and {KEY_VARIABLE} need each other")
    settings: dict[str, Any] = {"use_ssl": True, "ca": ca, "check_hostname": True}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca)
    except OSError as error:  # also those of OpenSSL
        raise InvalidArgument(f"{CA_VARIABLE}={ca} cannot be used: {error}") from None
    if certificate and key:
        try:
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:
            files = f"{CERTIFICATE_VARIABLE}={certificate}, {KEY_VARIABLE}={key}"
            raise InvalidArgument(f"{files} cannot be used: {error}") from None
        settings |= {"certfile": certificate, "keyfile": key}
    return settings
