"""Automations on the Prefect server, as code: what happens when a run crashes, hangs or fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.exceptions import ObjectNotFound

from podline.errors import SettingsError
from podline.tasks.runs.names import OUR_TAGS, SILENCE, TAG
from podline.tasks.runs.nights import PAUSED

GONE = "Podline: runs that are gone"
AGAIN = "Podline: crashed runs begin again, once"
FAILURES = "Podline: says what failed"
PAUSES = "Podline: says what it paused"
AS_IT_WAS = "as it was"

# A worker reports a run that is gone twice: when its process is, and 22 to 24 s later, when it has tidied up. The
# second report marks a run that was started again meanwhile as Crashed, so that it would be started once more beside
# itself; and a worker with a --limit fails for good at a run that it gets again before. So it waits this long.
_PAUSE = timedelta(seconds=60)
# Not Crashed, which a notification is sent for at the same time: on SQLite two automations that hear of one event may
# get into each other's way ("database is locked"), and then all of them hear of it again. Instead of a crash it is that
# the run begins again. One that crashed for good is not made Crashed again: the server refuses that.
_ENDS = ("Completed", "Failed", "Cancelled", "AwaitingRetry")
_RUNS = {"prefect.resource.id": ["prefect.flow-run.*"]}
_TAGGED = {"prefect.resource.id": [f"prefect.tag.{TAG}"], "prefect.resource.role": ["tag"]}
# Other flows on the server may send a heartbeat every 180 s, Prefect's default.
_OURS = {**_TAGGED, "prefect.resource.id": [f"prefect.tag.{tag}" for tag in OUR_TAGS]}


def blocks_named(client: SyncPrefectClient, names: Iterable[str]) -> list[UUID]:
    """Return the blocks of the setting ``nights.notify``, each ``type/name``.

    Raises:
        SettingsError: the server has no such block.
    """
    found = []
    for name in names:
        kind, _, block = name.partition("/")
        try:
            found.append(client.read_block_document_by_name(block, kind).id)
        except ObjectNotFound as error:
            raise SettingsError(
                f"nights.notify: the Prefect server has no block {name}; make it in the UI under Blocks, or see "
                "docs/how-to/failed-run.md"
            ) from error
    return found


def wanted(blocks: Sequence[UUID]) -> list[AutomationCore]:
    """Return every automation; those that notify only if there are blocks to notify."""
    return [_gone(), _again(), *([_failures(blocks), _pauses(blocks)] if blocks else [])]


def put(client: SyncPrefectClient, automation: AutomationCore) -> str:
    """Make or change an automation; return what was done."""
    found = client.read_automations_by_name(automation.name)
    if not found:
        client.create_automation(automation)
        return "made"
    if _written(found[0]) == _written(automation):
        return AS_IT_WAS
    # Whether it is enabled is the server's user's own choice.
    client.update_automation(found[0].id, automation.model_copy(update={"enabled": found[0].enabled}))
    return "changed"


def _gone() -> AutomationCore:
    """Mark a run of ours without heartbeats as Crashed: Prefect's "detect zombie flows"."""
    beat = "prefect.flow-run.heartbeat"
    trigger = {
        "type": "event",
        "after": [beat],
        "expect": [beat, *(f"prefect.flow-run.{end}" for end in _ENDS)],
        "match": _RUNS,
        "match_related": _OURS,
        "for_each": ["prefect.resource.id"],
        "posture": "Proactive",
        "threshold": 1,
        "within": SILENCE.total_seconds(),
    }
    crash = {
        "type": "change-flow-run-state",
        "state": "CRASHED",
        "message": "No sign of life any more: its process or its machine is gone.",
    }
    return _automation(
        GONE, "A run of Podline's deployments whose heartbeats have stopped becomes Crashed.", trigger, [crash]
    )


def _again() -> AutomationCore:
    """Start a crashed run again, once: a run's count is how often it has begun."""
    trigger = {
        "type": "event",
        "after": ["prefect.flow-run.Crashed"],
        # Unless somebody was quicker, by the button Retry.
        "expect": [f"prefect.flow-run.{state}" for state in ("AwaitingRetry", "Scheduled", "Pending")],
        "match": {**_RUNS, "prefect.run-count": ["1"]},
        "match_related": _TAGGED,
        "for_each": ["prefect.resource.id"],
        "posture": "Proactive",
        "threshold": 1,
        "within": _PAUSE.total_seconds(),
    }
    again = {
        "type": "change-flow-run-state",
        "state": "SCHEDULED",
        "name": "AwaitingRetry",
        "message": "It crashed at its first start and begins again, once; what is done is not done again.",
    }
    return _automation(AGAIN, "A run that crashed at its first start begins again a minute later.", trigger, [again])


def _failures(blocks: Sequence[UUID]) -> AutomationCore:
    trigger = _when(["prefect.flow-run.Failed", "prefect.flow-run.Crashed"], _RUNS)
    actions = _notifications(
        blocks,
        # As it was when it happened: by now the run may have begun again.
        "{{ flow_run.name }}: {{ event.payload.validated_state.name }}",
        "{{ event.payload.validated_state.message }}\n{{ flow_run|ui_url }}",
    )
    return _automation(
        FAILURES, "The cause in one line, and the link, to the blocks of nights.notify.", trigger, actions
    )


def _pauses(blocks: Sequence[UUID]) -> AutomationCore:
    trigger = _when([PAUSED], {"prefect.resource.id": ["prefect.deployment.*"]}, related={})
    actions = _notifications(
        # The last night, whose log says why: Prefect knows no address of a deployment here.
        blocks,
        "{{ deployment.name }}: schedule paused",
        "{{ event.payload.message }}\n{{ flow_run|ui_url }}",
    )
    return _automation(PAUSES, "Which schedule was paused and why, to the blocks of nights.notify.", trigger, actions)


def _when(events: list[str], match: dict[str, Any], related: dict[str, Any] = _TAGGED) -> dict[str, Any]:
    """Return the trigger that fires at each of these events, once."""
    return {
        "type": "event",
        "expect": events,
        "match": match,
        "match_related": related,
        "posture": "Reactive",
        "threshold": 1,
        "within": 0,
    }


def _notifications(blocks: Sequence[UUID], subject: str, body: str) -> list[dict[str, Any]]:
    return [
        {"type": "send-notification", "block_document_id": str(block), "subject": subject, "body": body}
        for block in blocks
    ]


def _automation(name: str, description: str, trigger: dict[str, Any], actions: list[dict[str, Any]]) -> AutomationCore:
    return AutomationCore.model_validate(
        {"name": name, "description": description, "trigger": trigger, "actions": actions}
    )


def _written(automation: AutomationCore | Automation) -> dict[str, Any]:
    """Return the description, trigger and actions of an automation."""
    # Not as JSON: sets have an order there, which differs from process to process.
    return automation.model_dump(include={"description", "trigger", "actions"})
