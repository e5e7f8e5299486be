"""The secrets of servers, ``user:password``; ``podline up`` keeps them in files that only their owner can read."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from podline.base.errors import SettingsError

_USER = "podline"
_BYTES = 24
_OWNERS = 0o600
# Prefect's server cannot compare other characters.
_SECRET = re.compile(r"[ -9;-~]+:[ -~]+")


def new() -> str:
    """Create a secret in Prefect's format, ``user:password``."""
    return f"{_USER}:{secrets.token_urlsafe(_BYTES)}"


def checked(secret: str, source: str) -> str:
    """Return a secret if it is one.

    Args:
        secret: the text.
        source: the variable or file that it is from.

    Raises:
        SettingsError: it is not ``user:password`` in ASCII.
    """
    if not _SECRET.fullmatch(secret):
        found = "another text" if secret else "no secret"
        raise SettingsError(f"got {found} in {source}, expected USER:PASSWORD in ASCII; set it, as to podline:SECRET")
    return secret


def kept(file: Path) -> str:
    """Return the secret in a file; empty without a file.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def kept_or_made(file: Path) -> str:
    """Return the secret in a file, which is created if it does not exist; the caller must hold a lock.

    Raises:
        OSError: the file can be neither read nor written.
    """
    file.touch(_OWNERS)
    file.chmod(_OWNERS)
    if not (secret := kept(file)):
        secret = new()
        file.write_text(f"{secret}\n")
    return secret
