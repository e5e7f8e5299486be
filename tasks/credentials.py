"""Passes credentials from a Prefect block to a running flow and its child processes.

The credentials are written to a file that only this user can read, in a folder that only this user can enter; an
environment variable names the file for Google's library. The file is deleted at the end of the flow or, if the flow was
killed, at the start of the next one. Specs, logs and artifacts contain only the block's name.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefect.blocks.core import Block

from podline.base.errors import CredentialsError
from podline.settings import environment
from podline.settings import machine as settings
from podline.store.contract import explained
from podline.store.folder import FolderStore

_KINDS = {"gcp-credentials": "prefect_gcp.credentials", "gcs-bucket": "prefect_gcp.cloud_storage"}


@contextlib.contextmanager
def bucket_credentials() -> Iterator[None]:
    """Let Google's library find the credentials of the block in the settings while the body runs.

    Without the setting, nothing is changed or imported.

    Raises:
        SettingsError: the settings are invalid.
        CredentialsError: the block does not exist, or has no credentials.
        StoreError: the file cannot be written.
    """
    store = settings.load().store
    if store.credentials_block is None:
        yield
        return
    block = _loaded(store.credentials_block)
    if block.service_account_file is None and block.service_account_info is None:
        yield  # the block uses the machine's own credentials
        return
    keys = FolderStore(Path(store.cache).expanduser() / "credentials")
    keys.sweep()
    with keys.workspace("key") as folder:
        folder.chmod(0o700)
        file = block.service_account_file or _written(block.service_account_info, folder / "account.json")
        with environment.google_credentials(file):
            _look_again()
            try:
                yield
            finally:
                _look_again()


def _loaded(name: str) -> Any:
    """Return the credentials of a block, ``gcp-credentials/NAME`` or ``gcs-bucket/NAME``."""
    kind, _, its_name = name.partition("/")
    if kind not in _KINDS or not its_name:
        raise CredentialsError(
            f"store.credentials_block: got {name!r}, expected gcp-credentials/NAME or gcs-bucket/NAME; `prefect block "
            "ls` lists the names"
        )
    importlib.import_module(_KINDS[kind])
    try:
        block = Block.load(name)
    except Exception as error:
        # An error about an unreadable block contains its content, so even its traceback is dropped.
        raise CredentialsError(
            f"the Prefect block {name} cannot be loaded ({type(error).__name__}); `prefect block ls` lists the blocks; "
            "the server of `podline run` has none: set GOOGLE_APPLICATION_CREDENTIALS to a key file instead"
        ) from None
    return block if kind == "gcp-credentials" else block.gcp_credentials  # type: ignore[union-attr]


def _written(info: Any, file: Path) -> Path:
    with explained("write", file):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(info.get_secret_value(), stream)
    return file


def _look_again() -> None:
    from podline.store.buckets import forget_clients  # noqa: PLC0415 (Google's client, which takes a second)

    forget_clients()
