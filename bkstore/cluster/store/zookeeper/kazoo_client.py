"""What bkstore takes of kazoo; without it, `MissingDependency` names the extra to install."""

from __future__ import annotations

from bkstore.errors import MissingDependency

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import (
        AuthFailedError,
        BadVersionError,
        ConnectionLoss,
        InvalidACLError,
        KazooException,
        NoAuthError,
        NodeExistsError,
        NoNodeError,
        NotEmptyError,
        OperationTimeoutError,
        SessionExpiredError,
        SessionMovedError,
    )
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.protocol.states import KazooState
except ImportError as error:
    raise MissingDependency.of("kazoo", "zookeeper", "a metadata store in ZooKeeper") from error

__all__ = [
    "FORBIDDEN",
    "UNCERTAIN",
    "BadVersionError",
    "KazooClient",
    "KazooException",
    "KazooState",
    "KazooTimeoutError",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
]

UNCERTAIN = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, SessionMovedError)
"""Errors after which nobody knows whether the request was executed."""

FORBIDDEN = (NoAuthError, AuthFailedError, InvalidACLError)
"""Errors of access lists."""
