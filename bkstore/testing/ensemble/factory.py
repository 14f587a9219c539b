"""A factory of ensembles in temporary directories: for the pytest fixture. Usable without pytest.

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
from bkstore.storage.options import Storage
from bkstore.testing.ensemble.ensemble import Ensemble


class EnsembleFactory:
    """Makes running `Ensemble`s, each with a ZooKeeper and bookies of its own.

    `top` is where their directories are made. `missing` is called with what to install where
    kazoo, pyspark's jars or Java are not there; else that is `MissingDependency`.
    """

    def __init__(
        self,
        top: Path,
        storage: Storage = "sorted",
        missing: Callable[[str], NoReturn] | None = None,
    ) -> None:
        self.top = top
        self.storage = storage
        self._missing = missing
        self._made: list[tuple[Ensemble, dict[str, Any]]] = []

    def __call__(
        self,
        bookies: int | None = None,
        storage: Storage | Sequence[Storage] | None = None,
        *,
        path: Path | None = None,
        **options: Any,
    ) -> Ensemble:
        """Return an ensemble that runs, of 3 bookies unless it is said, in a new directory.

        `storage` may be a list to deal out; `options` and errors are those of `Ensemble`.
        """
        place = self.top / f"ensemble-{len(self._made) + 1}" if path is None else path
        try:
            made = Ensemble(place, bookies, storage or self.storage, **options)
        except MissingDependency as error:
            if self._missing is None:
                raise
            self._missing(str(error))
        self._made.append((made, options))
        return made.start()

    def reopen(self, ensemble: Ensemble) -> Ensemble:
        """Stop one in order, and start it again on its directory."""
        for made, options in self._made:
            if made is ensemble:
                made.close()
                return self(path=made.path, **options)
        raise InvalidArgument("this factory did not make it")

    def close_all(self) -> list[BkstoreError]:
        """Stop whatever runs. Return what failed."""
        errors = []
        for made, _ in reversed(self._made):
            try:
                made.close()
            except BkstoreError as error:
                errors.append(error)
        return errors
