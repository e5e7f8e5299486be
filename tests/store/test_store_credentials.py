"""Credentials for the storage service are read by Google's library, and are told to nobody else."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest
from service_account import account_at, secrets_of

from podline.errors import CredentialsError, PodlineError, StoreUnavailableError
from podline.store.buckets import forget_clients
from podline.store.opening import open_store


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A service account's file, named by the environment, whose token service is a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    account = account_at(f"http://127.0.0.1:{port}/token?secret-question")
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setenv("PODLINE_STORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PODLINE_STORE_DEADLINE", "1")
    forget_clients()
    return account


def test_an_account_whose_token_service_is_away_is_told_without_a_word_of_its_own(
    account: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(PodlineError) as caught:
        open_store("gs://bucket/prefix").read_bytes("name")
    assert isinstance(caught.value, StoreUnavailableError | CredentialsError)
    told = f"{caught.value} {json.dumps(caught.value.to_json())} {caplog.text}"
    assert [secret for secret in ["secret", *secrets_of(account)] if secret in told] == []


def test_a_file_that_is_no_account_is_refused_without_its_content(account: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "account.json").write_text(json.dumps(account | {"type": "secret kind"}))
    forget_clients()
    with pytest.raises(CredentialsError, match="GOOGLE_APPLICATION_CREDENTIALS") as caught:
        open_store("gs://bucket/prefix").read_bytes("name")
    assert [secret for secret in ["secret", *secrets_of(account)] if secret in str(caught.value)] == []
