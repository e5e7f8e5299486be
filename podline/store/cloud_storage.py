"""google-cloud-storage: its client as Podline uses it, and its errors as Podline's, transient or permanent.

The library retries what is worth retrying until its deadline; an error comes after that.
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

from podline import settings
from podline.errors import ArtifactError, CredentialsError, PodlineError, StoreError, StoreUnavailableError

# A request's method and address, which say nothing to a person and may hold the token of an upload.
_ADDRESS = re.compile(r"\b(?:GET|POST|PUT|DELETE|HEAD|PATCH)?\s*https?://\S+|with url: \S+")
# What the library adds about itself.
_STATUS = re.compile(r"\('Request failed with status code'.*\)")
# Google's words about a token that was signed by a clock that is wrong.
_CLOCK = re.compile(r"iat and exp|short-lived token|Token used too (?:early|late)", re.IGNORECASE)
_CODES = frozenset({408, 429, 500, 502, 503, 504})
_BROKEN_OFF = (
    ConnectionError,
    DataCorruption,
    auth.TransportError,
    http.client.HTTPException,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
)
_MOST_WORDS = 300
# Of the most shards and ranges that may be on their way at once.
_KEPT_CONNECTIONS = 320


@functools.lru_cache(maxsize=1)
def client() -> storage.Client:
    """Return the client of this process, set up by the environment (credentials, proxies, the emulator's address)."""
    # It warns of each request that it repeats, with the address, in which a service account's name may be.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    # Else it asks for the bucket's location, to trace requests by; without saying who pays, and few accounts may.
    settings.export({"DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "1"})
    # Without a project: nothing here needs one, and credentials may not name any.
    made = storage.Client(project=None)
    # There is no public way to its session, and Google's own samples go this one.
    session: requests.Session = made._http
    # By default ten connections are kept, and each further one is opened for every request.
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_KEPT_CONNECTIONS))
    # Proxies and certificates are looked up once: for every request, it is a quarter of what a small one costs.
    found = session.merge_environment_settings(made.api_endpoint, {}, None, None, None)
    session.proxies, session.verify, session.trust_env = found["proxies"], found["verify"], False
    return made


def forget_client() -> None:
    """Close the client, so that the next one is set up by the environment of then."""
    if client.cache_info().currsize:
        client().close()
    client.cache_clear()


def worth_trying(error: BaseException) -> bool:
    """Return whether a whole transfer may be tried again: the service is busy, or the transfer broke off."""
    if isinstance(error, api.GoogleAPICallError):
        return error.code in _CODES
    if isinstance(error, InvalidResponse):
        return error.response.status_code in _CODES
    return isinstance(error, _BROKEN_OFF)


@contextlib.contextmanager
def cloud_explained(action: str, where: str, deadline: float, option: str = "--root") -> Generator[None, None, None]:
    """Turn what the library raises in the body into an error of one clear line.

    Args:
        action: what was being done, as a verb phrase: "read", "list".
        where: the object, or the store.
        deadline: seconds for which it was tried, the setting ``store.deadline``.
        option: where a person names the bucket.

    Raises:
        StoreUnavailableError: it may well work later.
        CredentialsError: there are none, or they are refused.
        ArtifactError: the object is another one by now.
        StoreError: anything else that trying again will not change.
    """
    try:
        yield
    except (api.GoogleAPICallError, api.RetryError, auth.GoogleAuthError, InvalidResponse, *_BROKEN_OFF) as error:
        cause = error.cause if isinstance(error, api.RetryError) else error
        raise _explanation(f"cannot {action} {where}", cause, deadline, option) from error


def _explanation(what: str, error: Exception, deadline: float, option: str) -> PodlineError:
    if worth_trying(error) or isinstance(error, InvalidResponse | api.ServerError):
        how = "answers with damaged content" if isinstance(error, DataCorruption) else "does not answer as it should"
        return StoreUnavailableError(
            f"{what}: the storage service {how}, however often it is asked (the setting store.deadline is "
            f"{deadline:g} s); last: {_words(error)}"
        )
    if isinstance(error, auth.GoogleAuthError | api.Unauthorized):
        if _CLOCK.search(str(error)):
            return CredentialsError(
                f"{what}: the credentials are refused for their times ({type(error).__name__}); is the clock of this "
                "machine right? Set it, or let NTP do it"
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
    """Return an error in a few words, without addresses."""
    text = _STATUS.sub("", _ADDRESS.sub("", str(getattr(error, "message", "") or error)))
    text = " ".join(text.split()).strip(" :")
    kind = int(error.code) if isinstance(error, api.GoogleAPICallError) and error.code else type(error).__name__
    return f"{kind} {text}"[:_MOST_WORDS]
