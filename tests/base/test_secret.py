"""A server's secret in a file: made once, for its owner alone."""

from __future__ import annotations

import stat
from pathlib import Path

from podline.base.secret import kept, kept_or_made


def test_a_secret_is_made_once_and_nobody_else_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    assert kept(file) == ""
    secret = kept_or_made(file)
    assert secret.startswith("podline:")
    assert len(secret) >= 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert kept_or_made(file) == secret
    assert kept(file) == secret
    assert kept_or_made(tmp_path / "other") != secret
    # An empty file that others could read is filled and closed.
    file.write_text("")
    file.chmod(0o644)
    assert kept_or_made(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
