"""The secret of the server of ``podline up``, in a file that only its owner can read."""

from __future__ import annotations

import secrets
from pathlib import Path

_USER = "podline"
_BYTES = 24
_OWNERS = 0o600


def new() -> str:
    """Create a secret in Prefect's format, ``user:password``."""
    return f"{_USER}:{secrets.token_urlsafe(_BYTES)}"


def kept(file: Path) -> str:
    """Return the secret in a file; empty without a file.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def kept_or_made(file: Path) -> tuple[str, bool]:
    """Return the secret in a file, and whether it was just created; the caller must hold a lock.

    Raises:
        OSError: the file can be neither read nor written.
    """
    file.touch(_OWNERS)
    file.chmod(_OWNERS)
    if secret := kept(file):
        return secret, False
    secret = new()
    file.write_text(f"{secret}\n")
    return secret, True
