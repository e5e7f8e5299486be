"""Sends requests to the Prefect server in ``PREFECT_API_URL``, with one-line errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

from podline.errors import PodlineError, ServerAwayError, SettingsError


def require_named() -> None:
    """Check that a server is named; otherwise Prefect would start its own, empty server.

    Raises:
        SettingsError: no server is named.
    """
    if not PREFECT_API_URL.value():
        raise SettingsError("which Prefect server? set PREFECT_API_URL, like http://127.0.0.1:4200/api")


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn errors of Prefect's client in the body into Podline's errors.

    Raises:
        SettingsError: the server asks for another secret.
        ServerAwayError: the server does not answer.
        PodlineError: the server refuses the request.
    """
    url = PREFECT_API_URL.value()
    try:
        yield
    except httpx.TransportError as error:
        raise ServerAwayError(f"the Prefect server {url} does not answer ({error})") from error
    except RuntimeError as error:
        # The engine raises this error at the start of a flow run.
        if not isinstance(error.__cause__, httpx.TransportError):
            raise
        raise ServerAwayError(f"the Prefect server {url} does not answer ({error.__cause__})") from error
    except PrefectHTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            given = "is another one" if PREFECT_API_AUTH_STRING.value() else "is not set"
            raise SettingsError(
                f"the Prefect server {url} asks for a secret: PREFECT_API_AUTH_STRING {given}; "
                "set it to the server's PREFECT_SERVER_API_AUTH_STRING, or to that in the file that `podline up` names"
            ) from error
        raise PodlineError(f"the Prefect server {url} refuses: {error}") from error
