"""Links from Prefect's UI to the pages of a store, where the run's server serves them.

That it does is not assumed: it is asked for each page, and a link is made where the answer has the page's own checksum.
So no link leads to a server of others, to one of an earlier release, or to the folder of another machine.
"""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import quote

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import VariableCreate, VariableUpdate
from prefect.runtime import deployment
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, get_current_settings

from podline.errors import PodlineError
from podline.store.contract import BUCKET_SCHEME, Store
from podline.tasks.addresses import PREFIX, SIGN, Known, deployment_variable, key_of, page_path, store_variable
from podline.tasks.secret import header

_API = "/api"
_SECONDS = 10.0
# Opens for whoever is logged in to Google Cloud and may read the bucket.
_BUCKET_PAGE = "https://storage.cloud.google.com/"


class PageLinks:
    """Links to the pages of one store, in Markdown."""

    def __init__(self, store: Store) -> None:
        """Names the store to the run's server, if that serves pages.

        Args:
            store: whose pages are linked.
        """
        self._store = store
        self._served = serves_pages()
        if self._served:
            with get_client(sync_client=True) as client:
                name_store(client, store.uri, deployment.name or "")

    def to(self, name: str, text: str = "", *, like: str = "") -> str:
        """A link to a page that a browser can follow; its place, where there is no such link.

        Args:
            name: of the page in the store.
            text: what is to be clicked on; the page's place unless given.
            like: another page, which is there already: the first is served if this one is.
        """
        where = self._store.where(name)
        if self._served and self._is_served(like or name):
            return f"[{text or where}]({address(page_path(self._store.uri, name))})"
        if where.startswith(BUCKET_SCHEME):
            return f"[{text or where}]({_BUCKET_PAGE}{quote(where.removeprefix(BUCKET_SCHEME))})"
        return f"`{where}`"

    def _is_served(self, name: str) -> bool:
        answer = _asked(page_path(self._store.uri, name))
        try:
            return answer is not None and answer.headers.get("ETag") == f'"{self._store.sha256(name)}"'
        except PodlineError:
            return False


def serves_pages() -> bool:
    """Whether the server that this process asks serves pages of stores."""
    answer = _asked(PREFIX)
    return answer is not None and SIGN in answer.headers


def address(path: str) -> str:
    """What a link in the UI has for a path of the server.

    A path is enough: the browser knows by which name it reached the server, through a tunnel as well. Where the UI is
    said to be at another address, it is below that.
    """
    found = get_current_settings()
    ui = found.ui_url if "ui_url" in found.model_fields_set else None
    return f"{(ui or '').rstrip('/')}{path}"


def name_store(client: SyncPrefectClient, uri: str, of_deployment: str) -> None:
    """Has a server serve a store's pages.

    Args:
        client: of the server.
        uri: the store's root.
        of_deployment: whose run uses it; may be empty.
    """
    _put(client, store_variable(key_of(uri)), Known(uri=uri, machine=socket.gethostname()).model_dump())
    if of_deployment:
        _put(client, deployment_variable(of_deployment), key_of(uri))


def _put(client: SyncPrefectClient, name: str, value: Any) -> None:
    found = client.read_variable_by_name(name)
    if found is None:
        client.create_variable(VariableCreate(name=name, value=value, tags=["podline"]))
    elif found.value != value:
        client.update_variable(VariableUpdate(name=name, value=value))


def _asked(path: str) -> httpx.Response | None:
    """The server's answer about a page, without the page; None if it is no server of ours, or does not answer."""
    api = (PREFECT_API_URL.value() or "").rstrip("/")
    if not api.endswith(_API):  # of a service of others, or of none
        return None
    secret = PREFECT_API_AUTH_STRING.value() or ""
    try:
        return httpx.head(f"{api.removesuffix(_API)}{path}", headers=header(secret), timeout=_SECONDS)
    except httpx.HTTPError:
        return None
