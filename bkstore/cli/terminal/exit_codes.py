"""The exit codes of all commands, and the rule that checking nothing is not success."""

from __future__ import annotations

CLEAN = 0
"""The command did its work and found no problem."""
FINDINGS = 1
"""The command found damage, losses, violations or differences."""
FAILED = 2
"""Wrong usage, input that cannot be read, output that cannot be written."""
NOTHING_CHECKED = 3
"""There was nothing to check, which does not count as a passed check."""


def exit_code(*, findings: bool, checked: bool) -> int:
    """Return the exit code of a command that checks; findings take precedence.

    >>> exit_code(findings=False, checked=True), exit_code(findings=True, checked=False)
    (0, 1)
    >>> exit_code(findings=False, checked=False)
    3
    """
    if findings:
        return FINDINGS
    return CLEAN if checked else NOTHING_CHECKED
