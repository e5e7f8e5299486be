"""A service account of Google Cloud that nobody knows, and what of it nobody may tell."""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def account_at(token_uri: str) -> dict[str, str]:
    """What the account's key file holds; its tokens are asked for at ``token_uri``."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "secret-project",
        "client_email": "secret-name@secret-project.iam.gserviceaccount.com",
        "private_key_id": "0123secretid",
        "private_key": key.decode(),
        "token_uri": token_uri,
    }


def secrets_of(account: dict[str, str]) -> list[str]:
    """Words that give an account away."""
    return ["secret-name", "secret-project", account["private_key_id"], *account["private_key"].splitlines()[1:-1]]
