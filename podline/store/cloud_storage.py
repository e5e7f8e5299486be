"""The client of google-cloud-storage, and the conversion of its errors to Podline's, transient or permanent.

The library retries temporary failures until its deadline; errors appear only after that.
"""

# Google's library has no types.
# pyright: reportMissingTypeStubs=false, reportPrivateUsage=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import contextlib
import functools
import http.client
import logging
import re
from collections.abc import Generator

import requests
import urllib3.exceptions
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from requests.adapters import HTTPAdapter

from podline.base.errors import ArtifactError, CredentialsError, PodlineError, StoreError, StoreUnavailableError
from podline.settings import machine as settings

# A request's method and address, which do not help a person and may contain the token of an upload.
_ADDRESS = re.compile(r"\b(?:GET|POST|PUT|DELETE|HEAD|PATCH)?\s*https?://\S+|with url: \S+")
# Text that the library adds about itself.
_STATUS = re.compile(r"\('Request failed with status code'.*\)")
# Google's messages about a token that a machine with a wrong clock signed.
_CLOCK = re.compile(r"iat and exp|short-lived token|Token used too (?:early|late)", re.IGNORECASE)
# 410 ends the session of a large upload, which another upload begins anew.
_CODES = frozenset({408, 410, 429, 500, 502, 503, 504})
_BROKEN_OFF = (
    ConnectionError,
    DataCorruption,
    auth.TransportError,
    http.client.HTTPException,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
)
_MOST_WORDS = 300
# The largest number of shards and ranges in parallel.
_KEPT_CONNECTIONS = 320


@functools.lru_cache(maxsize=1)
def client() -> storage.Client:
    """Return the client of this process, configured by the environment (credentials, proxies, emulator address)."""
    # The library warns of each repeated request, with its address, which may contain the name of a service account.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    # Otherwise the library requests the bucket's location for tracing, without a paying project and without permission.
    settings.export({"DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "1"})
    # No project is set: no call needs one, and credentials may have none.
    made = storage.Client(project=None)
    # Google's own samples access its session like this; there is no public way.
    session: requests.Session = made._http
    # By default ten connections are kept, and each further request opens a new one.
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_KEPT_CONNECTIONS))
    # Proxies and certificates are looked up once; for every request this takes a quarter of a small one's time.
    found = session.merge_environment_settings(made.api_endpoint, {}, None, None, None)
    session.proxies, session.verify, session.trust_env = found["proxies"], found["verify"], False
    return made


def forget_client() -> None:
    """Close the client, so that the next one uses the environment of that time."""
    if client.cache_info().currsize:
        client().close()
    client.cache_clear()


def worth_trying(error: BaseException) -> bool:
    """Return whether a whole transfer may be tried again: the service is busy, or the transfer was interrupted."""
    if isinstance(error, api.GoogleAPICallError):
        return error.code in _CODES
    if isinstance(error, InvalidResponse):
        return error.response.status_code in _CODES
    return isinstance(error, _BROKEN_OFF)


@contextlib.contextmanager
def cloud_explained(action: str, where: str, deadline: float, option: str = "--root") -> Generator[None, None, None]:
    """Turn the library's errors in the body into one-line errors.

    Args:
        action: the action as a verb phrase: "read", "list".
        where: the object, or the store.
        deadline: seconds of all tries, the setting ``store.deadline``.
        option: the option that names the bucket.

    Raises:
        StoreUnavailableError: a later try may work.
        CredentialsError: credentials are missing, or are refused.
        ArtifactError: the object has a new generation.
        StoreError: any other permanent error.
    """
    try:
        yield
    except (api.GoogleAPICallError, api.RetryError, auth.GoogleAuthError, InvalidResponse, *_BROKEN_OFF) as error:
        cause = error.cause if isinstance(error, api.RetryError) else error
        raise _explanation(f"cannot {action} {where}", cause, deadline, option) from error


def _explanation(what: str, error: Exception, deadline: float, option: str) -> PodlineError:
    if worth_trying(error) or isinstance(error, InvalidResponse | api.ServerError):
        how = "answers with damaged content" if isinstance(error, DataCorruption) else "answers with errors"
        return StoreUnavailableError(
            f"{what}: the storage service {how}, in all tries (the setting store.deadline is "
            f"{deadline:g} s); last: {_words(error)}"
        )
    if isinstance(error, auth.GoogleAuthError | api.Unauthorized):
        if _CLOCK.search(str(error)):
            return CredentialsError(
                f"{what}: the credentials are refused for their times ({type(error).__name__}); correct this "
                "machine's clock, or use NTP"
            )
        return CredentialsError(
            f"{what}: no valid credentials for Google Cloud ({type(error).__name__}); run `gcloud auth "
            "application-default login`, or let GOOGLE_APPLICATION_CREDENTIALS name a service account's file"
        )
    if isinstance(error, api.Forbidden) and "serviceusage.services.use" in str(error):
        return StoreError(
            f"{what}: this account may not let the project in store.user_project pay ({_words(error)}); give it the "
            "role roles/serviceusage.serviceUsageConsumer there"
        )
    if isinstance(error, api.Forbidden):
        return StoreError(
            f"{what}: permission denied ({_words(error)}); give this account the role roles/storage.objectUser on the "
            "bucket"
        )
    if isinstance(error, api.NotFound):
        return StoreError(
            f"{what}: there is no such bucket, or this account may not see it; check the name in {option}"
        )
    if isinstance(error, api.PreconditionFailed):
        return ArtifactError(f"{what}: another generation of it was written meanwhile; nothing was mixed, run it again")
    if isinstance(error, api.BadRequest) and "requester pays" in str(error).lower():
        return StoreError(f"{what}: the bucket is requester-pays; set store.user_project to the project that pays")
    return StoreError(f"{what}: {_words(error)}")


def _words(error: BaseException) -> str:
    """Return an error as a short text without addresses."""
    text = _STATUS.sub("", _ADDRESS.sub("", str(getattr(error, "message", "") or error)))
    text = " ".join(text.split()).strip(" :")
    kind = int(error.code) if isinstance(error, api.GoogleAPICallError) and error.code else type(error).__name__
    return f"{kind} {text}"[:_MOST_WORDS]
