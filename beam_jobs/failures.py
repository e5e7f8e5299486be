"""Convert an engine's exceptions to Podline's errors.

Beam transmits only the text of an error. So the error of a step is encoded in the text. Texts of engines and of Beam
itself are classified by a table of patterns.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence

from podline.base.errors import EngineError, EngineLostError, PodlineError, QuotaError, from_json
from podline.settings.engines import LOCAL

_MARK = re.compile(r"podline-error:([A-Za-z0-9_=-]+)")

# Patterns in error texts of engines and Beam, with error class and message; the first match applies.
_MEANINGS: Sequence[tuple[str, type[PodlineError], str]] = (
    (
        r"No module named 'podline|No module named 'apache_beam",
        EngineError,
        "a worker of the engine has no Podline; install the same release there, or start workers from Podline's image",
    ),
    (
        r"Can't get attribute|No module named|cannot import name|ModuleNotFoundError",
        EngineError,
        "the engine's workers have other software than this machine; start them from the same image or lock file",
    ),
    (
        r"HttpError 429|[Qq]uota exceeded|RESOURCE_EXHAUSTED",
        QuotaError,
        "the engine's quota is used up; raise it, or request fewer workers",
    ),
    (
        r"KilledWorker|worker .*(died|was lost)",
        EngineLostError,
        "the engine repeatedly lost workers, perhaps because memory ran out; give them more memory",
    ),
    (
        r"HttpError 40[13]|PermissionDenied|PERMISSION_DENIED|UNAUTHENTICATED|Forbidden:",
        EngineError,
        "the engine refuses this account; give it permission to start jobs there",
    ),
    (
        (
            r"Timed out trying|TimeoutError|UNAVAILABLE|DEADLINE_EXCEEDED|Connection\w*Error|CancelledError|CommClosed|"
            r"connection[- ]lost|the job ended as|HttpError 50[0234]"
        ),
        EngineLostError,
        "the engine does not answer, or the connection was lost; check whether it runs",
    ),
)


def encoded(error: PodlineError) -> RuntimeError:
    """Return an error with a step's error encoded in its text, since Beam transmits only text.

    :func:`error_within` decodes it.
    """
    text = base64.urlsafe_b64encode(json.dumps(error.to_json()).encode()).decode()
    return RuntimeError(f"{error} podline-error:{text}")


def error_within(text: str, engine: str) -> PodlineError:
    """Return the error that a step encoded in Beam's text; without one, an error with the last line of the text."""
    mark = _MARK.search(text)
    if mark:
        return from_json(json.loads(base64.urlsafe_b64decode(mark[1])))
    line = last_line(text)
    if engine != LOCAL:
        for words, error, means in _MEANINGS:
            if re.search(words, text):
                return error(f"engine {engine}: {means}: {line}")
    return PodlineError(f"the Beam job failed: {line}")


def last_line(text: str) -> str:
    """Return the last non-blank line of a text; in a traceback this is the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def holds_error(text: str) -> bool:
    """Return whether Beam's text contains an encoded error of a step."""
    return bool(_MARK.search(text))
