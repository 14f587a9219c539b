"""Factories of ensembles in temporary directories: for pytest fixtures. Usable without pytest.

with tempfile.TemporaryDirectory() as top:
    make = EnsembleFactory(Path(top))
    ensemble = make(3, "db")
    ...
    make.close_all()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bkstore.errors import BkstoreError, InvalidArgument, MissingDependency
from bkstore.storage.options import StorageKind
from bkstore.testing.ensemble.ensemble import Ensemble


class EnsembleFactory:
    """Makes running `Ensemble`s, each with a ZooKeeper and bookies of its own.

    `top` is the parent of their directories. Without kazoo, a ZooKeeper or Java `missing` is
    called with what to install; if it is None, `MissingDependency` is raised.
    """

    def __init__(
        self,
        top: Path,
        storage: StorageKind = "sorted",
        missing: Callable[[str], NoReturn] | None = None,
    ) -> None:
        """Make a factory in `top`; bookies have `storage` unless a call says otherwise."""
        self.top = top
        self.storage = storage
        self._report_missing = missing
        self._ensembles: list[tuple[Ensemble, dict[str, Any]]] = []

    def __call__(
        self,
        bookies: int | None = None,
        storage: StorageKind | Sequence[StorageKind] | None = None,
        *,
        path: Path | None = None,
        **options: Any,
    ) -> Ensemble:
        """Return a running ensemble of 3 bookies by default, in a new directory by default.
        `storage` may be a list to deal out; `options` and errors are those of `Ensemble`."""
        __tracebackhide__ = True
        directory = self.top / f"ensemble-{len(self._ensembles) + 1}" if path is None else path
        try:
            ensemble = Ensemble(directory, bookies, storage or self.storage, **options)
        except MissingDependency as error:
            if self._report_missing is None:
                raise
            self._report_missing(str(error))  # does not return
        self._ensembles.append((ensemble, options))
        return ensemble.start()

    def reopen(self, ensemble: Ensemble) -> Ensemble:
        """Close an ensemble, and start a new one on its directory."""
        for own, options in self._ensembles:
            if own is ensemble:
                own.close()
                return self(path=own.path, **options)
        raise InvalidArgument("it was not made by this factory")

    def close_all(self) -> list[BkstoreError]:
        """Close all ensembles; return the errors of that."""
        errors = []
        for ensemble, _ in reversed(self._ensembles):
            try:
                ensemble.close()
            except BkstoreError as error:
                errors.append(error)
        return errors


class SharedEnsembleFactory:
    """Returns running `Ensemble`s that tests share: the same one for equal arguments.

    An ensemble that exists is restored (`Ensemble.restore`) before it is returned: no fault is
    left, and all of its bookies are running and writable. Ledgers stay, and bookies that were
    added. One that was closed is replaced by a new one, in a new directory.
    """

    def __init__(self, make: EnsembleFactory) -> None:
        self._make = make
        self._shared: list[tuple[dict[str, Any], Ensemble]] = []

    def __call__(
        self,
        bookies: int = 3,
        storage: StorageKind | Sequence[StorageKind] | None = None,
        **options: Any,
    ) -> Ensemble:
        """Return an ensemble of `bookies` bookies; arguments and errors are those of `Ensemble`.

        A storage and a list of it alone are equal, and so are the default and its explicit value.
        Also raises what `Ensemble.restore` raises.
        """
        __tracebackhide__ = True
        kinds = storage or self._make.storage
        storages = [kinds] if isinstance(kinds, str) else list(kinds)
        arguments = {"bookies": bookies, "storages": storages, **options}
        for known, ensemble in self._shared:
            if known == arguments and not ensemble.closed:
                return ensemble.restore()
        ensemble = self._make(bookies, storages, **options)
        self._shared.append((arguments, ensemble))
        return ensemble
