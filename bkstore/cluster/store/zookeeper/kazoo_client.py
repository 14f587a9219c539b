"""The parts of kazoo that bkstore uses; raises `MissingDependency` if it is not installed."""

from __future__ import annotations

from bkstore.errors import MissingDependency

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
