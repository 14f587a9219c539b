"""Shared by the tests of the tools."""

from tests.frozen_samples import keep_frozen

__all__ = ["keep_frozen"]
