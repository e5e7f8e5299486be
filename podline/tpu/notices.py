"""Reads notices from a TPU VM's metadata server: preemption and maintenance.

The keys are those of Compute Engine: ``instance/preempted`` (``TRUE`` or ``FALSE``), ``instance/maintenance-event``
(``NONE``, or the host's next event) and ``instance/upcoming-maintenance`` (a JSON object; status 503 or 404 without an
announcement).
"""

from __future__ import annotations

import http.client
import json
from datetime import datetime

from podline.settings.tpu_settings import MachineSettings

_PREFIX = "/computeMetadata/v1/instance/"
_FLAVOR = {"Metadata-Flavor": "Google"}


def end_announced(machine: MachineSettings, now: float, lead: float) -> str:
    """Return why this machine is about to be stopped: a preemption or maintenance that Google announces.

    Args:
        machine: settings with the metadata server.
        now: seconds since 1970.
        lead: a maintenance that is only scheduled is ignored until this number of seconds before its start.

    Returns:
        The reason as text; empty without an announcement, or without a metadata server.
    """
    if _get(machine, "preempted").upper() == "TRUE":
        return "the machine is being preempted"
    if (event := _get(machine, "maintenance-event")) not in ("", "NONE"):
        return f"maintenance of the host: {event}"
    return _upcoming(_get(machine, "upcoming-maintenance?alt=json"), now, lead)


def _get(machine: MachineSettings, key: str) -> str:
    """Return the value of a key; empty without a value, or if the server fails to answer for this key."""
    try:
        return _asked(machine, key)
    except (OSError, http.client.HTTPException):
        return ""


def _asked(machine: MachineSettings, key: str) -> str:
    # urllib would send the request for this machine's metadata to a proxy.
    connection = http.client.HTTPConnection(machine.metadata_address, timeout=machine.metadata_timeout)
    try:
        connection.request("GET", _PREFIX + key, headers=_FLAVOR)
        response = connection.getresponse()
        body = response.read().decode(errors="replace").strip()
    finally:
        connection.close()
    if response.getheader("Metadata-Flavor") != "Google" or response.status not in (200, 404, 503):
        raise http.client.HTTPException(f"{machine.metadata_address}: {response.status} {response.reason}")
    return body if response.status == 200 else ""


def _upcoming(body: str, now: float, lead: float) -> str:
    """Return the reason of an announced maintenance as text; its keys may have underscores or camel case."""
    try:
        document = json.loads(body)
        values = {key.replace("_", "").lower(): str(value) for key, value in document.items()}
    except (ValueError, AttributeError):
        return ""
    kind = (values.get("type") or values.get("maintenancetype") or "announced").lower()
    if values.get("maintenancestatus", "").upper() == "ONGOING":
        return f"{kind} maintenance has begun"
    try:
        starts = datetime.fromisoformat(values.get("windowstarttime", "")).timestamp()
    except ValueError:
        return ""
    return f"{kind} maintenance starts within {lead:.0f} s" if starts - now <= lead else ""
