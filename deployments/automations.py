"""Automations on the Prefect server, as code: the reactions to runs that crash, hang or fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.exceptions import ObjectNotFound

from podline.base.errors import SettingsError
from podline.tasks.nights import PAUSED
from podline.tasks.server import OUR_TAGS, SILENCE, TAG

GONE = "Podline: runs that are gone"
AGAIN = "Podline: crashed runs begin again, once"
FAILURES = "Podline: says what failed"
PAUSES = "Podline: says what it paused"
AS_IT_WAS = "as it was"

# A worker reports a lost run twice: at the end of its process, and 22 to 24 s later, after its cleanup. If the run
# was restarted meanwhile, the second report marks it as Crashed, and a duplicate would be started. In addition, a
# worker with a --limit fails permanently if it receives the run before that. So the restart waits this long.
_PAUSE = timedelta(seconds=60)
# The trigger is not Crashed, which also triggers a notification: on SQLite, two automations on the same event may
# conflict ("database is locked"), and then all receive it again. The run restarts instead of being marked Crashed. A
# run with a final crash is not marked Crashed again, because the server refuses this.
_ENDS = ("Completed", "Failed", "Cancelled", "AwaitingRetry")
_RUNS = {"prefect.resource.id": ["prefect.flow-run.*"]}
_TAGGED = {"prefect.resource.id": [f"prefect.tag.{TAG}"], "prefect.resource.role": ["tag"]}
# Other flows on the server may send a heartbeat every 180 s, Prefect's default.
_OURS = {**_TAGGED, "prefect.resource.id": [f"prefect.tag.{tag}" for tag in OUR_TAGS]}


def blocks_named(client: SyncPrefectClient, names: Iterable[str]) -> list[UUID]:
    """Return the ids of the blocks in the setting ``nights.notify``, which are named ``type/name``.

    Raises:
        SettingsError: the server does not have one of the blocks.
    """
    found = []
    for name in names:
        kind, _, block = name.partition("/")
        try:
            found.append(client.read_block_document_by_name(block, kind).id)
        except ObjectNotFound as error:
            raise SettingsError(
                f"nights.notify: the Prefect server has no block {name}; create it in the UI under Blocks, or see "
                "docs/how-to/failed-run.md"
            ) from error
    return found


def wanted(blocks: Sequence[UUID]) -> list[AutomationCore]:
    """Return all automations; the ones for notification only if there are blocks to notify."""
    return [_gone(), _again(), *([_failures(blocks), _pauses(blocks)] if blocks else [])]


def put(client: SyncPrefectClient, automation: AutomationCore) -> str:
    """Create or update an automation; return the action taken."""
    found = client.read_automations_by_name(automation.name)
    if not found:
        client.create_automation(automation)
        return "made"
    if _written(found[0]) == _written(automation):
        return AS_IT_WAS
    # The server's user decides whether it is enabled.
    client.update_automation(found[0].id, automation.model_copy(update={"enabled": found[0].enabled}))
    return "changed"


def _gone() -> AutomationCore:
    """Return the automation that marks Podline's runs without heartbeat as Crashed: Prefect's "detect zombie flows"."""
    beat = "prefect.flow-run.heartbeat"
    expect = [beat, *(f"prefect.flow-run.{end}" for end in _ENDS)]
    crash = {
        "type": "change-flow-run-state",
        "state": "CRASHED",
        "message": "Its heartbeats stopped: its process or machine has ended.",
    }
    about = "Marks a run of Podline's deployments as Crashed when its heartbeats stop."
    return _automation(GONE, about, _unless(beat, expect, _RUNS, _OURS, SILENCE), [crash])


def _again() -> AutomationCore:
    """Return the automation that restarts a run that crashed at its first start, recognised by a run count of 1."""
    # Unless a person has already restarted it with the button Retry.
    expect = [f"prefect.flow-run.{state}" for state in ("AwaitingRetry", "Scheduled", "Pending")]
    first = {**_RUNS, "prefect.run-count": ["1"]}
    trigger = _unless("prefect.flow-run.Crashed", expect, first, _TAGGED, _PAUSE)
    again = {
        "type": "change-flow-run-state",
        "state": "SCHEDULED",
        "name": "AwaitingRetry",
        "message": "It crashed at its first start and restarts once; completed work is kept.",
    }
    return _automation(AGAIN, "Restarts a run that crashed at its first start, after a minute.", trigger, [again])


def _failures(blocks: Sequence[UUID]) -> AutomationCore:
    trigger = _when(["prefect.flow-run.Failed", "prefect.flow-run.Crashed"], _RUNS)
    actions = _notifications(
        blocks,
        # The state from the event: the run may have restarted since.
        "{{ flow_run.name }}: {{ event.payload.validated_state.name }}",
        "{{ event.payload.validated_state.message }}\n{{ flow_run|ui_url }}",
    )
    return _automation(FAILURES, "Sends the cause and the link to the blocks of nights.notify.", trigger, actions)


def _pauses(blocks: Sequence[UUID]) -> AutomationCore:
    trigger = _when([PAUSED], {"prefect.resource.id": ["prefect.deployment.*"]}, related={})
    actions = _notifications(
        # The link leads to the last night, whose log has the reason; Prefect has no deployment address here.
        blocks,
        "{{ deployment.name }}: schedule paused",
        "{{ event.payload.message }}\n{{ flow_run|ui_url }}",
    )
    return _automation(PAUSES, "Sends the schedule and the reason to the blocks of nights.notify.", trigger, actions)


def _unless(
    after: str, expect: list[str], match: dict[str, Any], related: dict[str, Any], within: timedelta
) -> dict[str, Any]:
    """Return a trigger that fires if no event of ``expect`` follows the event ``after`` within the time ``within``."""
    more = {"after": [after], "for_each": ["prefect.resource.id"], "within": within.total_seconds()}
    return _when(expect, match, related) | more | {"posture": "Proactive"}


def _when(events: list[str], match: dict[str, Any], related: dict[str, Any] = _TAGGED) -> dict[str, Any]:
    """Return a trigger that fires each time one of these events occurs."""
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
    # Not as JSON: the order of sets there differs between processes.
    return automation.model_dump(include={"description", "trigger", "actions"})
