"""Makes links to the pages of stores, which :mod:`podline.deployments.pages` serves at a separate address.

This address is the setting ``pages.url``. Links exist for the stores in the settings, which the pages' program serves.
A store is addressed by a digest of its root, so that addresses contain no paths of a machine.
"""

from __future__ import annotations

from urllib.parse import quote

from podline.settings import machine as settings
from podline.store import digests
from podline.store.contract import BUCKET_SCHEME, Store
from podline.store.opening import open_store

# Opens for accounts of Google Cloud with read access to the bucket.
_BUCKET_PAGE = "https://storage.cloud.google.com/"


def served() -> dict[str, Store]:
    """Return the stores whose pages are served, by key: the root, and the setting ``pages.stores``."""
    machine = settings.load()
    stores = [open_store(root, "pages.stores") for root in (machine.root, *machine.pages.stores)]
    return {key_of(store.uri): store for store in stores}


def key_of(uri: str) -> str:
    """Return the key in a store's address."""
    return digests.of_bytes(uri.encode())[:12]


def page_path(uri: str, name: str) -> str:
    """Return the path of a store's page in its address."""
    return f"/stores/{key_of(uri)}/{quote(name)}"


class PageLinks:
    """Links to the pages of one store, in Markdown."""

    def __init__(self, store: Store) -> None:
        url = settings.load().pages.url.rstrip("/")
        self._store, self._url = store, url if url and key_of(store.uri) in served() else ""

    def to(self, name: str, title: str = "") -> str:
        """Return a link to a page of the store, or its path if no server serves it; both with the title."""
        where, address = self._store.where(name), self.address(name)
        if address:
            return f"[{title or where}]({address})"
        return f"{title}: `{where}`" if title else f"`{where}`"

    def address(self, name: str) -> str:
        """Return the address of a page of the store; empty if no server serves it."""
        where = self._store.where(name)
        if self._url:
            return f"{self._url}{page_path(self._store.uri, name)}"
        is_in_bucket = where.startswith(BUCKET_SCHEME)
        return f"{_BUCKET_PAGE}{quote(where.removeprefix(BUCKET_SCHEME))}" if is_in_bucket else ""
