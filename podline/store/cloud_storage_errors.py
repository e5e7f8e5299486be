"""Turns errors of google-cloud-storage into Podline's, transient or permanent.

The library has retried by then what is worth retrying, until its deadline.
"""

# Google's library tells no types.
# pyright: reportMissingTypeStubs=false, reportPrivateUsage=false
from __future__ import annotations

import contextlib
import re
from collections.abc import Generator

import requests
from google.api_core import exceptions as api
from google.api_core.retry import if_exception_type
from google.auth import exceptions as auth
from google.cloud.storage import exceptions as storage
from google.cloud.storage.retry import DEFAULT_RETRY

from podline.errors import ArtifactError, CredentialsError, PodlineError, StoreError, StoreUnavailableError

# A request's method and address, which say nothing to a person and may hold the token of an upload.
_ADDRESS = re.compile(r"\b(?:GET|POST|PUT|DELETE|HEAD|PATCH)?\s*https?://\S+|with url: \S+")
# What the library adds about itself.
_STATUS = re.compile(r"\('Request failed with status code'.*\)")
# What Google says to a token that was signed by a clock that is wrong.
_CLOCK = re.compile(r"iat and exp|short-lived token|Token used too (?:early|late)", re.IGNORECASE)
_WORTH_IT = if_exception_type(storage.DataCorruption, requests.RequestException)
_MOST_WORDS = 300


def worth_trying(error: BaseException) -> bool:
    """Whether a whole transfer may be tried again: what the library retries, and what arrived damaged."""
    return isinstance(error, Exception) and bool(DEFAULT_RETRY._predicate(error) or _WORTH_IT(error))


@contextlib.contextmanager
def cloud_explained(action: str, where: str, deadline: float, option: str = "--root") -> Generator[None, None, None]:
    """Turns what the library raises in its body into an error of one clear line.

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
    except (api.GoogleAPICallError, api.RetryError, auth.GoogleAuthError) as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, storage.DataCorruption):
            raise _damaged(f"cannot {action} {where}", cause, deadline) from error
        raise _explanation(f"cannot {action} {where}", error, deadline, option) from error
    except storage.DataCorruption as error:
        raise _damaged(f"cannot {action} {where}", error, deadline) from error
    except (storage.InvalidResponse, requests.RequestException, ConnectionError) as error:
        raise _away(f"cannot {action} {where}", error, deadline) from error


def _explanation(what: str, error: Exception, deadline: float, option: str) -> PodlineError:
    if isinstance(error, api.RetryError | auth.TransportError):
        return _away(what, getattr(error, "cause", None) or error, deadline)
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
    if isinstance(error, api.ServerError | api.TooManyRequests) or worth_trying(error):
        return _away(what, error, deadline)
    return StoreError(f"{what}: {_words(error)}")


def _away(what: str, error: BaseException, deadline: float) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"{what}: the storage service does not answer as it should, however often it is asked (the setting "
        f"store.deadline is {deadline:g} s); last: {_words(error)}"
    )


def _damaged(what: str, error: BaseException, deadline: float) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"{what}: it arrives damaged, however often it is asked for (the setting store.deadline is {deadline:g} s); "
        f"last: {_words(error)}"
    )


def _words(error: BaseException) -> str:
    """An error in a few words, without addresses."""
    text = _STATUS.sub("", _ADDRESS.sub("", str(getattr(error, "message", "") or error)))
    text = " ".join(text.split()).strip(" :")
    kind = int(error.code) if isinstance(error, api.GoogleAPICallError) and error.code else type(error).__name__
    return f"{kind} {text}"[:_MOST_WORDS]
