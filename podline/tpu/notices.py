"""Notices from a TPU VM's metadata server: preemption and maintenance.

The keys are those of Compute Engine: ``instance/preempted`` (``TRUE`` or ``FALSE``), ``instance/maintenance-event``
(``NONE``, or what is about to happen to the host) and ``instance/upcoming-maintenance`` (a JSON object; 503 or 404
while there is nothing to announce).
"""

from __future__ import annotations

import http.client
import json
from datetime import datetime
from typing import Any

from podline.frozen import Frozen
from podline.tpu_settings import MachineSettings

_PREFIX = "/computeMetadata/v1/instance/"
_FLAVOR = {"Metadata-Flavor": "Google"}
_NOTHING = (404, 503)


class Maintenance(Frozen):
    """An announced maintenance; ``starts`` is in seconds since 1970, None if the announcement does not say."""

    starts: float | None = None
    ongoing: bool = False
    kind: str = ""


class Notices(Frozen):
    """What the metadata server says at a time."""

    preempted: bool = False
    maintenance_event: str = "NONE"
    upcoming: Maintenance | None = None

    def end_announced(self, now: float, lead: float) -> str:
        """Why the TPU is about to be taken away, within ``lead`` seconds; empty if it is not."""
        if self.preempted:
            return "the machine is being preempted"
        if self.maintenance_event != "NONE":
            return f"maintenance of the host: {self.maintenance_event}"
        if self.upcoming is None:
            return ""
        if self.upcoming.ongoing:
            return f"{self.upcoming.kind or 'announced'} maintenance is under way".lower()
        if self.upcoming.starts is not None and self.upcoming.starts - now <= lead:
            return f"{self.upcoming.kind or 'announced'} maintenance starts within {lead:.0f} s".lower()
        return ""


def read(address: str, timeout: float) -> Notices | None:
    """What the metadata server announces now.

    Args:
        address: host, or host:port.
        timeout: seconds for each of three calls.

    Returns:
        The notices, or None if no metadata server answers there.
    """
    try:
        preempted = _get(address, "preempted", timeout)
        event = _get(address, "maintenance-event", timeout)
        upcoming = _get(address, "upcoming-maintenance?alt=json", timeout)
    except (OSError, http.client.HTTPException):
        return None
    return Notices(
        preempted=(preempted or "FALSE").upper() == "TRUE",
        maintenance_event=event or "NONE",
        upcoming=_maintenance(upcoming) if upcoming else None,
    )


def end_announced(machine: MachineSettings, now: float, lead: float) -> str:
    """Why this machine is about to be taken away, within ``lead`` seconds; empty if it is not, or if nobody says so."""
    heard = read(machine.metadata_address, machine.metadata_timeout)
    return heard.end_announced(now, lead) if heard else ""


def _get(address: str, key: str, timeout: float) -> str | None:
    # http.client and not urllib: a proxy must never be asked for this machine's own metadata.
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request("GET", _PREFIX + key, headers=_FLAVOR)
        response = connection.getresponse()
        body = response.read().decode(errors="replace").strip()
    finally:
        connection.close()
    if response.getheader("Metadata-Flavor") != "Google":
        raise http.client.HTTPException(f"{address} is no metadata server")
    if response.status in _NOTHING:
        return None
    if response.status != 200:
        raise http.client.HTTPException(f"{response.status} {response.reason}")
    return body


def _maintenance(body: str) -> Maintenance | None:
    """The announcement; its keys are written with underscores by some servers, in camel case by others."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    if not isinstance(document, dict) or "error" in document:
        return None
    values: dict[str, Any] = {key.replace("_", "").lower(): value for key, value in document.items()}
    kind = str(values.get("type") or values.get("maintenancetype") or "")
    return Maintenance(
        starts=_seconds(values.get("windowstarttime")),
        ongoing=str(values.get("maintenancestatus", "")).upper() == "ONGOING",
        kind=kind,
    )


def _seconds(timestamp: object) -> float | None:
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp()
    except ValueError:
        return None
