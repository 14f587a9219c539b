"""Which status a bookie answers an error with."""

from __future__ import annotations

from collections.abc import Callable

from bkstore.errors import BkstoreError, DataUnknown, IllegalOperation
from bkstore.wire.status import Status, status_of as status_for


def status_of(error: BkstoreError | OSError) -> Status:
    """Return the status of an error; of a bookie that is closed or has failed it is EIO."""
    return Status.EIO if isinstance(error, IllegalOperation) else status_for(error)


def add_status(error: BkstoreError | OSError) -> Status:
    """Return the answer to an add; limbo is no access there, as upstream."""
    return Status.EUA if isinstance(error, DataUnknown) else status_of(error)


def status_after(call: Callable[[], object]) -> Status:
    """Return EOK after a call, or the status of its error."""
    try:
        call()
    except (BkstoreError, OSError) as error:
        return status_of(error)
    return Status.EOK
