"""Link to the pages of stores, which :mod:`podline.deployments.pages` serves under the setting ``pages.url``.

Only the stores in the settings are served. In an address, a digest of the store's root identifies the store, so that
addresses contain no path of a machine. A page in a bucket that is not served has an address at Google's console.
"""

from __future__ import annotations

from urllib.parse import quote

from podline.settings import machine as settings
from podline.store import digests
from podline.store.contract import BUCKET_SCHEME, Store
from podline.store.opening import open_store

# Shows an object of a bucket in the browser of an account with read access.
_BUCKET_PAGE = "https://storage.cloud.google.com/"


def served() -> dict[str, Store]:
    """Return the stores whose pages are served, by key: those at ``root`` and in the setting ``pages.stores``."""
    machine = settings.load()
    stores = [open_store(root, "pages.stores") for root in (machine.root, *machine.pages.stores)]
    return {key_of(store.uri): store for store in stores}


def key_of(uri: str) -> str:
    """Return the key that identifies a store in addresses: 12 hexadecimal digits."""
    return digests.of_bytes(uri.encode())[:12]


def page_path(uri: str, name: str) -> str:
    """Return the path component of a page's address."""
    return f"/stores/{key_of(uri)}/{quote(name)}"


class PageLinks:
    """Creates Markdown links to the pages of one store."""

    def __init__(self, store: Store) -> None:
        url = settings.load().pages.url.rstrip("/")
        self._store, self._url = store, url if url and key_of(store.uri) in served() else ""

    def to(self, name: str, title: str = "") -> str:
        """Return a link to a page, with a title or the page's path; without an address, the path itself."""
        where, address = self._store.where(name), self.address(name)
        if address:
            return f"[{title or where}]({address})"
        return f"{title}: `{where}`" if title else f"`{where}`"

    def address(self, name: str) -> str:
        """Return the URL of a page: on the server, or for a bucket at Google's console; else empty."""
        where = self._store.where(name)
        if self._url:
            return f"{self._url}{page_path(self._store.uri, name)}"
        is_in_bucket = where.startswith(BUCKET_SCHEME)
        return f"{_BUCKET_PAGE}{quote(where.removeprefix(BUCKET_SCHEME))}" if is_in_bucket else ""
