"""Names of authentication plugins in AUTH messages. Source: `sasl/SaslConstants`,
`auth/AuthProviderFactoryFactory`."""

from __future__ import annotations

SASL = b"sasl"

AUTH_DISABLED = b"AuthDisabledPlugin"
"""The plugin in a bookie's answer to AUTH if it does not require authentication (any more)."""
