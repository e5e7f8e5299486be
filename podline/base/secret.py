"""Secrets of servers in the form ``user:password``; ``podline up`` keeps them in files that only the owner can read."""

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
    """Return a secret unchanged if it has the form ``user:password``.

    Args:
        secret: the text.
        source: the environment variable or file with the secret.

    Raises:
        SettingsError: the text is not ``user:password`` in ASCII.
    """
    if not _SECRET.fullmatch(secret):
        found = "has another form" if secret else "is empty"
        raise SettingsError(f"{source} {found}, expected USER:PASSWORD in ASCII; set it to podline:SECRET, for example")
    return secret


def kept(file: Path) -> str:
    """Return the secret in a file; empty if the file does not exist.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def kept_or_made(file: Path) -> str:
    """Return the secret in a file; create file and secret if missing. The caller must hold a lock.

    Raises:
        OSError: the file cannot be read or written.
    """
    file.touch(_OWNERS)
    file.chmod(_OWNERS)
    if not (secret := kept(file)):
        secret = new()
        file.write_text(f"{secret}\n")
    return secret
