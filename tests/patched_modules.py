"""Members of Python's modules replaced for one module of ours, not for the whole process."""

from __future__ import annotations

from types import ModuleType

import pytest


def patch_module(
    monkeypatch: pytest.MonkeyPatch, user: ModuleType, name: str, **members: object
) -> None:
    """Give `user` its own copy of the module `name` with other `members`.

    A patch of `user.time.sleep` itself would replace it for every other thread as well: those of
    libraries that an earlier test began sleep too, and would get the replacement.
    """
    original = getattr(user, name)
    patched = ModuleType(original.__name__)
    vars(patched).update(vars(original), **members)
    monkeypatch.setattr(user, name, patched)
