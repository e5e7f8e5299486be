"""The secret of the server that ``podline up`` starts, in a file that only its owner can read."""

from __future__ import annotations

import secrets
from pathlib import Path

_USER = "podline"
_BYTES = 24
_OWNERS = 0o600


def new() -> str:
    """Return a secret as Prefect wants it, ``user:password``."""
    return f"{_USER}:{secrets.token_urlsafe(_BYTES)}"


def kept(file: Path) -> str:
    """Return the secret in a file; empty if there is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def kept_or_made(file: Path) -> tuple[str, bool]:
    """Return the secret in a file, and whether it was made just now; the caller has a lock.

    Raises:
        OSError: it can be neither read nor written.
    """
    file.touch(_OWNERS)
    file.chmod(_OWNERS)
    if secret := kept(file):
        return secret, False
    secret = new()
    file.write_text(f"{secret}\n")
    return secret, True
