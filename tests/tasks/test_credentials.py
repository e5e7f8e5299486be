"""A block's credentials reach Google's library by a file of the run, and nobody else."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from prefect_gcp.cloud_storage import GcsBucket
from prefect_gcp.credentials import GcpCredentials
from service_account import account_at

from podline.base.errors import CredentialsError
from podline.settings.environment import child_environment
from podline.store import buckets
from podline.store.folder import FolderStore
from podline.tasks.credentials import bucket_credentials

GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_server: None) -> Path:
    monkeypatch.setenv("PODLINE_STORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(GOOGLE, "before")
    return tmp_path / "cache"


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_block_is_a_file_for_as_long_as_the_flow_runs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bucket_credentials():
        assert os.environ[GOOGLE] == "before"
    assert not cache.exists(), "without the setting"
    account = account_at("http://127.0.0.1:1/token")
    credentials = GcpCredentials(service_account_info=account)  # type: ignore[arg-type]
    credentials.save("the-account", overwrite=True)
    GcsBucket(bucket="b", gcp_credentials=credentials).save("the-bucket", overwrite=True)
    with FolderStore(cache / "credentials").workspace("key") as own:
        killed = own.with_name(own.name.replace(f"~{os.getpid()}~", f"~{2**22 + 1}~"))
    killed.mkdir(parents=True)
    (killed / "account.json").write_text("of a run that was killed")
    forgotten: list[bool] = []
    monkeypatch.setattr(buckets, "forget_clients", lambda: forgotten.append(True))
    for name in ("gcp-credentials/the-account", "gcs-bucket/the-bucket"):
        monkeypatch.setenv("PODLINE_STORE_CREDENTIALS_BLOCK", name)
        with bucket_credentials():
            file = Path(os.environ[GOOGLE])
            assert kept(cache) == [file]
            assert json.loads(file.read_text()) == account
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
            assert child_environment(cache)[GOOGLE] == str(file), "a stage's process finds them in the same way"
        assert kept(cache) == []
        assert os.environ[GOOGLE] == "before"
    assert len(forgotten) == 4, "at the start and at the end of each body"


def test_a_block_that_cannot_be_used_is_refused_without_what_it_holds(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret-file.json"
    file.write_text(json.dumps(account_at("http://127.0.0.1:1/token")))
    GcpCredentials(service_account_file=file).save("a-file", overwrite=True)
    monkeypatch.setenv("PODLINE_STORE_CREDENTIALS_BLOCK", "gcp-credentials/a-file")
    with bucket_credentials():
        assert os.environ[GOOGLE] == str(file)
    file.unlink()
    for name, words in (
        ("gcp-credentials/a-file", "the Prefect block gcp-credentials/a-file cannot be loaded"),
        ("gcp-credentials/none", "`prefect block ls` lists"),
        ("secret/x", r"got 'secret/x', expected gcp-credentials/NAME or gcs-bucket/NAME"),
    ):
        monkeypatch.setenv("PODLINE_STORE_CREDENTIALS_BLOCK", name)
        with pytest.raises(CredentialsError, match=words) as caught, bucket_credentials():
            pytest.fail("the flow has begun")
        assert "secret-" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert kept(cache) == []
