"""Create the client of google-cloud-storage, and turn its errors into Podline's transient or permanent errors.

The library retries temporary failures until its deadline; only then does it raise an error.
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
from podline.settings import environment

# A request's method and URL: they do not help the reader, and the URL may contain an upload token.
_ADDRESS = re.compile(r"\b(?:GET|POST|PUT|DELETE|HEAD|PATCH)?\s*https?://\S+|with url: \S+")
# Text with which the library wraps a message.
_STATUS = re.compile(r"\('Request failed with status code'.*\)")
# Google's messages about a token signed by a machine with a wrong clock.
_CLOCK = re.compile(r"iat and exp|short-lived token|Token used too (?:early|late)", re.IGNORECASE)
# 410 ends the session of a large upload; a new upload starts another session.
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
# Connections to keep: the largest number of shards and byte ranges fetched in parallel.
_KEPT_CONNECTIONS = 320


@functools.lru_cache(maxsize=1)
def client() -> storage.Client:
    """Return this process's client, configured by the environment (credentials, proxies, emulator address)."""
    # The library logs each repeated request with its URL, which may contain the name of a service account.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    # Otherwise the library requests the bucket's location for tracing, which may fail without a project or permission.
    environment.export({"DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "1"})
    # No project is set: no call needs one, and credentials may have none.
    made = storage.Client(project=None)
    # Google's own samples access its session like this; there is no public way.
    session: requests.Session = made._http
    # By default the session keeps ten connections, and opens a new one for each further request.
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_KEPT_CONNECTIONS))
    # Look up proxies and certificates once: per request this takes a quarter of the time of a small request.
    found = session.merge_environment_settings(made.api_endpoint, {}, None, None, None)
    session.proxies, session.verify, session.trust_env = found["proxies"], found["verify"], False
    return made


def worth_trying(error: BaseException) -> bool:
    """Return whether a whole transfer is worth repeating: the service is busy, or the transfer was interrupted."""
    if isinstance(error, api.GoogleAPICallError):
        return error.code in _CODES
    if isinstance(error, InvalidResponse):
        return error.response.status_code in _CODES
    return isinstance(error, _BROKEN_OFF)


@contextlib.contextmanager
def cloud_explained(action: str, where: str, deadline: float, option: str = "--root") -> Generator[None, None, None]:
    """Turn the library's exceptions in the body into Podline's errors, each of one line.

    Args:
        action: the attempted action as a verb phrase: "read", "list".
        where: the URI of the object or store.
        deadline: limit in seconds for all attempts together, the setting ``store.deadline``.
        option: the command-line option that named the bucket.

    Raises:
        StoreUnavailableError: a later attempt may succeed.
        CredentialsError: credentials are missing or refused.
        ArtifactError: the object was replaced meanwhile.
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
            f"{what}: the storage service {how} in all attempts within {deadline:g} s (setting store.deadline); "
            f"the last error: {_words(error)}"
        )
    if isinstance(error, auth.GoogleAuthError | api.Unauthorized):
        if _CLOCK.search(str(error)):
            return CredentialsError(
                f"{what}: the credentials are refused because of their time stamps ({type(error).__name__}); correct "
                "this machine's clock, or use NTP"
            )
        return CredentialsError(
            f"{what}: no valid credentials for Google Cloud ({type(error).__name__}); run `gcloud auth "
            "application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account"
        )
    if isinstance(error, api.Forbidden) and "serviceusage.services.use" in str(error):
        return StoreError(
            f"{what}: this account may not bill the project in store.user_project ({_words(error)}); grant it the "
            "role roles/serviceusage.serviceUsageConsumer in that project"
        )
    if isinstance(error, api.Forbidden):
        return StoreError(
            f"{what}: permission denied ({_words(error)}); grant this account the role roles/storage.objectUser on the "
            "bucket"
        )
    if isinstance(error, api.NotFound):
        return StoreError(
            f"{what}: the bucket does not exist, or this account may not see it; check the name in {option}"
        )
    if isinstance(error, api.PreconditionFailed):
        return ArtifactError(f"{what}: another process wrote the object meanwhile; run the command again")
    if isinstance(error, api.BadRequest) and "requester pays" in str(error).lower():
        return StoreError(f"{what}: the bucket is requester-pays; set store.user_project to the project to bill")
    return StoreError(f"{what}: {_words(error)}")


def _words(error: BaseException) -> str:
    """Return an error's code or type and its message, shortened and without URLs."""
    text = _STATUS.sub("", _ADDRESS.sub("", str(getattr(error, "message", "") or error)))
    text = " ".join(text.split()).strip(" :")
    kind = int(error.code) if isinstance(error, api.GoogleAPICallError) and error.code else type(error).__name__
    return f"{kind} {text}"[:_MOST_WORDS]
