"""Requests to the Prefect server that ``PREFECT_API_URL`` names, with errors of one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

from podline.errors import PodlineError, ServerAwayError, SettingsError


def require_named() -> None:
    """Check that a server is named; without, Prefect would start one of its own and find nothing on it.

    Raises:
        SettingsError: none is.
    """
    if not PREFECT_API_URL.value():
        raise SettingsError("which Prefect server? set PREFECT_API_URL, like http://127.0.0.1:4200/api")


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn what Prefect's client raises in the body into an error of ours.

    Raises:
        SettingsError: the server asks for a secret that is not the one given.
        ServerAwayError: it does not answer.
        PodlineError: it refuses.
    """
    url = PREFECT_API_URL.value()
    try:
        yield
    except httpx.TransportError as error:
        raise ServerAwayError(f"the Prefect server {url} does not answer ({error})") from error
    except RuntimeError as error:
        # As the engine raises it when it begins a flow run.
        if not isinstance(error.__cause__, httpx.TransportError):
            raise
        raise ServerAwayError(f"the Prefect server {url} does not answer ({error.__cause__})") from error
    except PrefectHTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            given = "is another one" if PREFECT_API_AUTH_STRING.value() else "is not set"
            raise SettingsError(
                f"the Prefect server {url} asks for a secret: PREFECT_API_AUTH_STRING {given}; "
                "it has to be what the server was given as PREFECT_SERVER_API_AUTH_STRING, or what `podline up` told"
            ) from error
        raise PodlineError(f"the Prefect server {url} refuses: {error}") from error
