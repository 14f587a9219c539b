"""The exit codes of all commands, and the rule that a check of nothing has not passed."""

from __future__ import annotations

CLEAN = 0
"""The command did what was asked for, and found nothing amiss."""
FINDINGS = 1
"""Something was found: damage, losses, violations, differences."""
FAILED = 2
"""Wrong usage, input that cannot be read, output that cannot be written."""
NOTHING_CHECKED = 3
"""Nothing was there to be checked: that is not a check passed."""


def verdict(*, findings: bool, checked: bool) -> int:
    """Return the exit code of a command that checks: of findings first, then of what it looked at.

    >>> verdict(findings=False, checked=True), verdict(findings=True, checked=False)
    (0, 1)
    >>> verdict(findings=False, checked=False)
    3
    """
    if findings:
        return FINDINGS
    return CLEAN if checked else NOTHING_CHECKED
