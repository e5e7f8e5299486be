"""URLs of the pages of stores; see :mod:`podline.deployments.pages`.

A run names its store by a Variable on the server, ``podline_store_<key>``, and that of its deployment by
``podline_store_of_<deployment>``. So a run may be given any root in its form, and no address has a root in it.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from podline.frozen import Frozen
from podline.store import digests

PREFIX = "/podline/"
"""Of the address of every page."""
SIGN = "Podline-Pages"
"""A header of every answer about pages: by it a server that serves them is told from another one."""
STORE = "podline_store_"
"""The variables of stores begin with it; see :func:`store_variable`."""


class Known(Frozen):
    """A store that a run has named.

    Attributes:
        uri: the root.
        machine: where the last run was at work that named it; a folder may be there and not at the server.
    """

    uri: str
    machine: str


def known(value: Any) -> Known | None:
    """What a variable says; None if it is nonsense: a person may have written anything into it."""
    try:
        return Known.model_validate(value)
    except ValidationError:
        return None


def key_of(uri: str) -> str:
    """By which a store is addressed."""
    return digests.of_bytes(uri.encode())[:12]


def is_key(text: Any) -> bool:
    """Whether a text may be a store's key."""
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{12}", text) is not None


def store_variable(key: str) -> str:
    """The variable that says where the store of a key is."""
    return f"{STORE}{key}"


def deployment_variable(name: str) -> str:
    """The variable with the key of the store that a deployment's runs used last."""
    return f"{STORE}of_{re.sub('[^a-z0-9_]', '_', name.lower())}"


def page_path(uri: str, name: str) -> str:
    """Where a server has a page of a store."""
    return f"{PREFIX}stores/{key_of(uri)}/{quote(name)}"


def nights_path(deployment: str) -> str:
    """Where a server has the index of the store that a deployment's runs used last."""
    return f"{PREFIX}nights/{quote(deployment, safe='')}"
