"""A bucket as the store: what only the network can do to it, and what it answers to that."""

from __future__ import annotations

import gzip
import json
import logging
import os
import random
import socket
from pathlib import Path

import fault_proxy
import pytest
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from service_account import account_at, secrets_of

from podline.base.errors import (
    ArtifactError,
    CredentialsError,
    PodlineError,
    StoreError,
    StoreUnavailableError,
    TransientError,
)
from podline.data.sources.remote import objects_of
from podline.store import buckets, digests
from podline.store.buckets import BucketStore, forget_clients
from podline.store.cloud_storage import client, cloud_explained
from podline.store.opening import open_store


@pytest.fixture
def store(gcs_root: str) -> BucketStore:
    store = open_store(gcs_root)
    assert isinstance(store, BucketStore)
    return store


def test_what_another_program_wrote_is_read_and_its_checksum_made(store: BucketStore) -> None:
    store._reference("foreign").upload_from_string(b"content")
    for uri in (store.uri, f"{store.uri}/"):
        assert open_store(uri).sha256("foreign") == digests.of_bytes(b"content")


def test_an_object_that_changes_between_look_and_fetch_is_refused_by_name(store: BucketStore) -> None:
    store.publish_bytes("name", b"one")
    before = store.find("name")
    store.publish_bytes("name", b"two", replace=True)
    with pytest.raises(ArtifactError, match=rf"name has generation \d+ now, but had {before.version} when"):
        store.local("name", before)


def test_a_missing_bucket_is_named(gcs_root: str) -> None:
    store = open_store("gs://there-is-none/x")
    for ask in (store.exists, store.read_bytes, store.sha256, lambda name: store.publish_bytes(name, b"")):
        with pytest.raises(StoreError, match=r"gs://there-is-none/x.*the bucket does not exist"):
            ask("name")
    with pytest.raises(StoreError, match=r"the bucket does not exist.*--root"):
        store.list()
    with pytest.raises(StoreError, match=r"the bucket does not exist.*--source"):
        objects_of("gs://there-is-none/x")


@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        (api.Forbidden("GET https://x/o?upload_id=secret: denied"), StoreError, r"permission denied.*objectUser"),
        (api.BadRequest("Bucket is a requester pays bucket"), StoreError, r"store\.user_project"),
        (api.Unauthorized("x"), CredentialsError, "GOOGLE_APPLICATION_CREDENTIALS"),
        (auth.DefaultCredentialsError("x"), CredentialsError, "GOOGLE_APPLICATION_CREDENTIALS"),
        (auth.RefreshError("token=secret"), CredentialsError, "gcloud auth"),
        (auth.RefreshError("Invalid JWT: secret; check your iat and exp values"), CredentialsError, "clock"),
        (api.Forbidden("a does not have serviceusage.services.use access"), StoreError, "serviceUsageConsumer"),
        (api.ServiceUnavailable("x"), StoreUnavailableError, "503"),
        (api.TooManyRequests("x"), StoreUnavailableError, "429"),
        (api.RetryError("x", ConnectionError("gone")), StoreUnavailableError, "gone"),
    ],
)
def test_an_answer_is_an_error_that_says_what_to_do(cause: Exception, kind: type[PodlineError], words: str) -> None:
    with (
        pytest.raises(kind, match=rf"cannot read gs://b/o: .*{words}") as caught,
        cloud_explained("read", "gs://b/o", 1),
    ):
        raise cause
    assert isinstance(caught.value, TransientError) == (kind is StoreUnavailableError)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_who_pays_is_told_with_every_request(
    proxy: fault_proxy.FaultProxy, gcs_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODLINE_STORE_USER_PROJECT", "payer")
    forget_clients()
    store, large = open_store(gcs_root), tmp_path / "large"
    large.write_bytes(bytes(9_000_000))
    store.publish_bytes("name", b"content")
    store.publish_bytes("name", b"other", replace=True)
    store.publish_file(large, "large")
    found = store.find("name")
    assert (store.read_bytes("name"), store.read_range("name", 1, 2)) == (b"other", b"th")
    assert b"".join(store.read_pieces("name", 3, found.version)) == b"other"
    assert len(store.locals(["name", "large"])) == len(store.list()) == 2
    store.delete("name")
    assert not store.exists("name")
    assert len(proxy.queries) > 15
    # The pieces of a large upload go to an address of their own, which who pays was given.
    told = [query.get("userProject") for query in proxy.queries if "upload_id" not in query]
    assert set(map(str, told)) == {"['payer']"}


def test_the_client_has_the_session_that_podline_sets_up(gcs_root: str) -> None:
    """An attribute of the library is private: if it goes, this fails, and not the speed of a training."""
    session = client()._http
    assert not session.trust_env
    assert session.get_adapter(client().api_endpoint).poolmanager.connection_pool_kw["maxsize"] == 320


def test_the_environment_says_which_way_requests_go(
    proxy: fault_proxy.FaultProxy, gcs_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://storage.invalid")
    monkeypatch.setenv("http_proxy", proxy.url)
    forget_clients()
    store = open_store(gcs_root)
    store.publish_bytes("name", b"content")
    proxy.queries.clear()
    assert store.read_range("name", 0, 3) == b"con"
    assert len(proxy.queries) == 1


def test_objects_of_a_folder_are_looked_at_together_and_come_in_pieces(
    proxy: fault_proxy.FaultProxy, gcs_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_FETCHED_BYTES", 400)
    store = open_store(gcs_root)
    contents = {f"a folder/{number}": random.randbytes(100 * number) for number in range(10)}
    for name, content in contents.items():
        store.publish_bytes(name, content)
    store.publish_bytes("a folder/below/it", b"not asked for")
    proxy.queries.clear()
    assert [path.read_bytes() for path in store.locals(contents)] == list(contents.values())
    assert sum("prefix" in query for query in proxy.queries) == 1
    assert sum("generation" in query for query in proxy.queries) == 9 + 5 + 1  # 0…900 bytes in pieces of 400
    assert len(proxy.queries) == 16
    store.locals(contents)
    assert len(proxy.queries) == 17
    with pytest.raises(StoreError, match=r"cannot read .*a folder/missing: it does not exist"):
        store.locals([*contents, "a folder/missing"])


def test_what_is_stored_compressed_is_read_as_it_is_stored(store: BucketStore) -> None:
    foreign, content = store._reference("labels.gz"), gzip.compress(b"labels" * 1000)
    foreign.content_encoding = "gzip"
    foreign.upload_from_string(content)
    found = store.find("labels.gz")
    assert found.bytes == len(content)
    assert store.local("labels.gz").read_bytes() == store.read_bytes("labels.gz") == content
    assert store.read_range("labels.gz", 3, 20) == content[3:23]
    assert b"".join(store.read_pieces("labels.gz", 50, found.version)) == content


def test_with_a_fault_in_every_fifth_request_everything_still_ends_with_the_same_bytes(
    proxy: fault_proxy.FaultProxy, gcs_root: str, tmp_path: Path
) -> None:
    drawn = random.Random(1)
    contents = {f"n/{number} ü": drawn.randbytes(drawn.randrange(5000)) for number in range(8)}
    large = tmp_path / "large"
    large.write_bytes(drawn.randbytes(20_000_001))
    store = open_store(gcs_root)
    proxy.share = 0.2
    for name, content in contents.items():
        store.publish_bytes(name, content)
    store.publish_file(large, "large")
    assert {name: store.read_bytes(name) for name in contents} == contents
    assert [path.read_bytes() for path in store.locals(contents)] == list(contents.values())
    assert store.list() == ["large", *sorted(contents)]
    assert store.local("large").read_bytes() == large.read_bytes()
    for name in contents:
        store.delete(name)
    proxy.share = 0
    assert store.list() == ["large"]
    assert proxy.happened.total() >= 5


def test_a_damaged_download_is_noticed_and_fetched_again(proxy: fault_proxy.FaultProxy, gcs_root: str) -> None:
    store = open_store(gcs_root)
    store.publish_bytes("name", b"content")
    proxy.share, proxy.faults, proxy.left = 1.0, (fault_proxy.DAMAGE,), 2
    assert store.local("name").read_bytes() == store.read_bytes("name") == b"content"
    assert proxy.happened[fault_proxy.DAMAGE] == 2


@pytest.mark.parametrize("fault", [fault_proxy.CUT, "503"])
def test_a_service_that_always_fails_is_one_transient_error(
    proxy: fault_proxy.FaultProxy, gcs_root: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("PODLINE_STORE_DEADLINE", "1")
    store = open_store(gcs_root)
    store.publish_bytes("name", b"content")
    proxy.share, proxy.faults = 1.0, (fault,)
    asked = (store.local, store.read_bytes, store.exists, lambda name: store.publish_bytes(name, b"x", replace=True))
    for ask in asked:
        with pytest.raises(StoreUnavailableError, match=r"name: .*within 1 s \(setting store\.deadline\)"):
            ask("name")
    with pytest.raises(StoreUnavailableError, match="cannot list"):
        store.list()


def test_an_upload_whose_session_is_gone_begins_anew(
    proxy: fault_proxy.FaultProxy, gcs_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, source, hear = open_store(gcs_root), tmp_path / "source", proxy.hear
    source.write_bytes(os.urandom(9 * 2**20))
    proxy.faults, proxy.left = ("410",), 1

    def gone(query: dict[str, list[str]], authorization: str) -> None:
        hear(query, authorization)
        proxy.share = float("upload_id" in query)

    monkeypatch.setattr(proxy, "hear", gone)
    store.publish_file(source, "large")
    assert proxy.happened["410"] == 1
    assert store.local("large").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("named", [True, False])
def test_a_repeated_deletion_names_the_generation_that_was_seen(
    proxy: fault_proxy.FaultProxy, gcs_root: str, named: bool
) -> None:
    """So it cannot hit a newer object; the stand-in has no such condition for deletions."""
    store = open_store(gcs_root)
    store.publish_bytes("name", b"old")
    found = store.find("name")
    assert found is not None
    proxy.queries.clear()
    proxy.faults, proxy.left, proxy.share = ("503",), 2, 1.0
    store.delete("name", found.version if named else "")
    conditions = [query["ifGenerationMatch"] for query in proxy.queries if "ifGenerationMatch" in query]
    assert conditions == [[found.version]] * len(conditions) != []
    assert not store.exists("name")


def test_a_copy_that_is_damaged_or_half_fetched_is_replaced_by_the_next_process(store: BucketStore) -> None:
    store.publish_bytes("name", b"content")
    copy = store.local("name")
    half = copy.with_name(f"{'0' * 32}.half")
    copy.write_bytes(b"kontent")
    half.write_bytes(b"half")
    store._cache.release()  # as the next process begins
    assert store.local("name").read_bytes() == b"content"
    assert not half.exists()


def test_the_least_recently_used_copy_goes_first(gcs_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODLINE_STORE_CACHE_LIMIT", "2500")
    store = open_store(gcs_root)
    assert isinstance(store, BucketStore)
    for name in ("a", "b", "c"):
        store.publish_bytes(name, name.encode() * 1000)
    first, second = store.locals(["a", "b"])
    os.utime(first, ns=(2_000_000_000 * 10**9, 2_000_000_000 * 10**9))
    store._cache.release()
    third = store.local("c")
    assert [path.exists() for path in (first, second, third)] == [True, False, True]


def test_an_account_whose_token_service_is_away_or_that_is_none_is_told_without_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    account = account_at(f"http://127.0.0.1:{port}/token?secret-question")
    file = tmp_path / "account.json"
    caplog.set_level(logging.INFO)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setenv("PODLINE_STORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PODLINE_STORE_DEADLINE", "1")
    for kind, error in (("service_account", StoreUnavailableError), ("secret kind", CredentialsError)):
        file.write_text(json.dumps(account | {"type": kind}))
        forget_clients()
        with pytest.raises(error) as caught:
            open_store("gs://bucket/prefix").read_bytes("name")
        told = f"{caught.value} {json.dumps(caught.value.to_json())} {caplog.text}"
        assert [secret for secret in ["secret", *secrets_of(account)] if secret in told] == []
