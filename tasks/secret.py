"""The secret of the server that ``podline up`` starts, in a file that only its owner can read."""

from __future__ import annotations

import base64
import os
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
    with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT, _OWNERS), "r+") as stream:
        os.fchmod(stream.fileno(), _OWNERS)
        if secret := stream.read().strip():
            return secret, False
        secret = new()
        stream.write(f"{secret}\n")
        stream.flush()
        os.fsync(stream.fileno())
        return secret, True


def header(secret: str) -> dict[str, str]:
    """Return the headers by which a request brings a secret; none without one."""
    return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"} if secret else {}
