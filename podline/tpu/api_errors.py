"""Converts errors of the Cloud TPU API to those of :mod:`podline.base.errors`.

An expired credential must not look like an absent TPU or an unavailable API. gRPC reports a credential that could not
be refreshed as UNAVAILABLE (grpc/grpc#19186), like a lost connection; only the text distinguishes them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import grpc
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.rpc import code_pb2

from podline.base.errors import (
    CredentialsError,
    PodlineError,
    QuotaError,
    TpuApiError,
    TpuCapacityError,
    TpuSetupError,
    TpuUnhealthyError,
)

_LOG_IN = (
    "log in again (`gcloud auth application-default login`), or give the machine a service account, or name a key file "
    "in GOOGLE_APPLICATION_CREDENTIALS"
)
# Messages of google.auth and Google's token servers about credentials that need a person.
_BAD_CREDENTIAL = re.compile(
    r"invalid_grant|invalid_rapt|invalid_client|unauthorized_client|deleted_client|disabled_client|account_not_found|"
    r"expired|revoked|reauthentication|refresh_token",
    re.IGNORECASE,
)
_PLUGIN = "Getting metadata from plugin failed"
# A rate limit passes within a minute. All other quotas need a person.
_RATE = re.compile(r"per minute|per second|rate limit|too many requests|qps", re.IGNORECASE)
_QUOTA = re.compile(r"quota", re.IGNORECASE)

_UNAVAILABLE = frozenset(
    {code_pb2.UNAVAILABLE, code_pb2.DEADLINE_EXCEEDED, code_pb2.INTERNAL, code_pb2.UNKNOWN, code_pb2.CANCELLED}
)
_ARGUMENTS = frozenset({code_pb2.INVALID_ARGUMENT, code_pb2.OUT_OF_RANGE})
_SETUP: dict[int, str] = {
    code_pb2.PERMISSION_DENIED: "grant the account the role roles/tpu.admin, and enable the API tpu.googleapis.com",
    code_pb2.INVALID_ARGUMENT: "correct the settings tpu.spec",
    code_pb2.OUT_OF_RANGE: "correct the settings tpu.spec",
    code_pb2.UNIMPLEMENTED: "correct tpu.api.endpoint, which does not serve version 2 of the Cloud TPU API",
    code_pb2.NOT_FOUND: "correct the name of the project, zone, network, accelerator or runtime version",
}


class ArgumentError(TpuSetupError):
    """The API refuses a request because one of its values is invalid."""


class NotFoundError(ArgumentError):
    """A node, request, project or other object in a request does not exist."""


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise one of Podline's errors for a failed API call in the body; the message begins with ``what``."""
    try:
        yield
    except exceptions.GoogleAPICallError as error:
        raise explain(what, _code(error), error.message or str(error)) from error
    except exceptions.RetryError as error:
        raise TpuApiError(f"{what}: {_line(str(error))}") from error
    except auth_exceptions.DefaultCredentialsError as error:
        raise CredentialsError(f"{what}: this machine has no credentials for Google Cloud; {_LOG_IN}") from error
    except auth_exceptions.GoogleAuthError as error:
        raise _auth(what, str(error), retryable=error.retryable) from error


def explain(what: str, code: int, message: str) -> PodlineError:
    """Return Podline's error for a failed call or operation.

    Args:
        what: the action, for the beginning of the message.
        code: the status, a number of ``google.rpc.Code``.
        message: the API's message.
    """
    line = f"{what}: {_line(message)}"
    if _PLUGIN in message:
        return _auth(what, message, retryable=False)
    if code == code_pb2.UNAUTHENTICATED:
        return CredentialsError(f"{line}; {_LOG_IN}")
    if code == code_pb2.RESOURCE_EXHAUSTED:
        return _exhausted(line, message)
    if code == code_pb2.NOT_FOUND:
        return NotFoundError(f"{line}; {_SETUP[code]}")
    if code in _SETUP:
        kind = ArgumentError if code in _ARGUMENTS else TpuSetupError
        return kind(f"{line}; {_SETUP[code]}")
    if code in _UNAVAILABLE:
        return TpuApiError(line)
    return TpuUnhealthyError(line)


def _exhausted(line: str, message: str) -> PodlineError:
    if _RATE.search(message):
        return TpuApiError(line)
    if _QUOTA.search(message):
        return QuotaError(f"{line}; ask for more quota, delete unused nodes, or choose another zone or type")
    return TpuCapacityError(line)


def _auth(what: str, message: str, *, retryable: bool) -> PodlineError:
    line = f"{what}: {_line(message)}"
    if _BAD_CREDENTIAL.search(message) and not retryable:
        return CredentialsError(f"{line}; the credentials have expired or were revoked: {_LOG_IN}")
    return TpuApiError(f"{line} (the credentials could not be refreshed)")


def _code(error: exceptions.GoogleAPICallError) -> int:
    status = error.grpc_status_code
    return status.value[0] if isinstance(status, grpc.StatusCode) else code_pb2.UNKNOWN


def _line(message: str) -> str:
    return " ".join(message.split())[:400].rstrip(".")
