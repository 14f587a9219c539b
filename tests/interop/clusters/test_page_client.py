"""The Java program of `docs/clients-in-tests.md`: the real client on an ensemble, by its `env`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from bkstore.network import Client
from bkstore.testing.ensemble.factory import SharedEnsembleFactory
from tests.interop.class_path import class_path, tool
from tests.paths import ROOT


@pytest.mark.usefixtures("java_classes")  # skips without a real BookKeeper
def test_the_page_s_program(bkstore_module_ensemble: SharedEnsembleFactory, tmp_path: Path) -> None:
    """It prints the entry that it wrote, and bkstore reads it with the page's password."""
    text = (ROOT / "docs" / "clients-in-tests.md").read_text(encoding="utf-8")
    program = re.search(r"^```java\n// (\w+\.java)\n(.*?)^```", text, re.M | re.S)
    command = re.search(r"^```sh\njava (.*) -cp", text, re.M)
    assert program is not None
    assert command is not None
    source = tmp_path / program[1]
    source.write_text(program[2], encoding="utf-8")
    ensemble = bkstore_module_ensemble(3)
    result = subprocess.run(
        [str(tool("java")), command[1], "-cp", class_path(), str(source)],
        env={**os.environ, **ensemble.env},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert result.stdout.splitlines()[-1:] == ["hello"], result.stdout + result.stderr
    with Client(ensemble.uri) as client:
        assert b"hello" == client.open_ledger(0, password=b"secret").read_entry(0).payload
