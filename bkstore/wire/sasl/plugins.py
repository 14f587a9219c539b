"""Names of authentication plugins in AUTH messages. Source: `sasl/SaslConstants`,
`auth/AuthProviderFactoryFactory`."""

from __future__ import annotations

SASL = b"sasl"

AUTH_DISABLED = b"AuthDisabledPlugin"
"""What a bookie names in its answer to AUTH where none is asked for, or none any more."""
