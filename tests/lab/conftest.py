"""Shared by the tests of the lab."""

from tests.frozen_samples import keep_frozen

__all__ = ["keep_frozen"]
