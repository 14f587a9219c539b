"""A certificate for loopback, made by the openssl command, and contexts for both ends."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

__all__ = ["client_context", "made_certificate", "needs_openssl", "server_context"]

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")


def made_certificate(directory: Path, name: str = "IP:127.0.0.1") -> Path:
    """Return a PEM file with a new key and its self-signed certificate for a host."""
    key, certificate, both = (directory / name for name in ("key.pem", "cert.pem", "both.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=bookie"]
    command += ["-addext", f"subjectAltName={name}", "-keyout", str(key)]
    subprocess.run([*command, "-out", str(certificate)], check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


def server_context(pem: Path) -> ssl.SSLContext:
    """Return the context of a server that shows the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


def client_context(pem: Path | None) -> ssl.SSLContext:
    """Return the context of a client that trusts the certificate, or only public ones."""
    return ssl.create_default_context(cafile=None if pem is None else str(pem))
