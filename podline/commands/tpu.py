"""``podline tpu``: shows a TPU's state and the repair rules, and runs the repairs of gate and patrol by hand."""

from __future__ import annotations

from typing import Any

import click

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.commands import pages
from podline.commands.options import answer, json_option, load_settings, say, settings_option
from podline.settings.tpu_settings import Limits, TpuSettings
from podline.tpu import patrol as patrol_table
from podline.tpu import policy as policy_table
from podline.tpu.clock import SystemClock
from podline.tpu.gate import admitted, look
from podline.tpu.tpu_log import TpuLog, Tried

# Names, imported when needed, because the library must not import packages of a higher layer.
_PATROL = "podline.flows.tpu_patrol:by_hand"
_GUARD = "podline.deployments.up:use_secret"


@click.group("tpu", cls=pages.Group)
def tpu() -> None:
    """Inspect and repair a TPU, and run the patrol over idle nodes.

    The settings tpu.node, tpu.api.project, tpu.api.zone, ... identify the TPU; see docs/how-to/tpu.md.
    """


@tpu.command("status")
@click.option("--policy", is_flag=True, help="Only print the rules of gate and patrol, with delays and budgets.")
@settings_option
@json_option
def status(as_json: bool, policy: bool, **options: Any) -> None:
    """Show a TPU: node, health, symptoms, lock, user, cool-down, and what the gate would do next.

    The command changes nothing.

      podline tpu status
      podline tpu status --json
      podline tpu status --policy

    Next: `podline tpu recover`, if the TPU is not healthy.
    """
    if policy and as_json:
        raise SettingsError("got --policy and --json, expected one of the two")
    found = load_settings(options).tpu
    if policy:
        _show_policy(found)
        return
    # Importing Google's client takes half a second, which `--policy` and the help pages do not need.
    from podline.tpu.client import CloudTpu  # noqa: PLC0415

    chosen, clock = _named(found), SystemClock()
    with CloudTpu(chosen.api, clock) as api:
        view = look(chosen, api, clock)
    decision = view.decision(Tried(), chosen, hung=False, patient=True)
    lines = view.lines() | {"the gate would": f"{decision.action}: {decision.why}"}
    answer(
        view.model_dump(mode="json") | {"decision": decision.action, "because": decision.why},
        lambda: [f"{name:<14}  {value}" for name, value in lines.items()],
        as_json=as_json,
    )


@tpu.command("recover")
@settings_option
def recover(**options: Any) -> None:
    """Wait for a TPU and repair it, as the gate does, until it is usable or beyond repair.

    The command prints each wait and each repair; `podline tpu status --policy` shows the rules. While a running process
    uses the TPU, the command waits, and never takes the TPU away.

      podline tpu recover
    """
    from podline.tpu.client import CloudTpu  # noqa: PLC0415 (as above)

    chosen, clock = _named(load_settings(options).tpu), SystemClock()
    with CloudTpu(chosen.api, clock) as api, admitted(chosen, api, clock, TpuLog(lambda line: say([line]))):
        say([f"node {chosen.node} may be used"])


@tpu.command("patrol")
@settings_option
@json_option
def patrol(as_json: bool, **options: Any) -> None:
    """Run one round of the patrol: check the node, its queued request, its lease, and orphaned runs.

    The command prints its findings. If the setting tpu.patrol is `repair`, it also acts by the rules of `podline tpu
    status --policy`. PREFECT_API_URL names the Prefect server. The deployment tpu-patrol does the same every ten
    minutes.

      podline tpu patrol
      PODLINE_TPU_PATROL=repair podline tpu patrol
    """
    machine = load_settings(options)
    _named(machine.tpu)
    entry_points.load(_GUARD)(machine)
    findings = entry_points.load(_PATROL)()
    answer([finding.model_dump(mode="json") for finding in findings], lambda: list(map(str, findings)), as_json=as_json)


def _show_policy(found: TpuSettings | None) -> None:
    limits = (found.budget() if found else Limits()).model_dump()
    say([*_columns(policy_table.table()), "", "The first matching row applies. Delays (in seconds) and budgets:", ""])
    for name, value in limits.items():
        values = {f".{each}": number for each, number in value.items()} if isinstance(value, dict) else {"": value}
        say([f"tpu.limits.{name}{each} = {number:g}" for each, number in values.items()])
    say(["", *_columns(patrol_table.table())])
    if found is not None:
        say(["", f"tpu.idle_stop = {found.idle_stop:g} (minutes)", f"tpu.patrol = {found.patrol}"])


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    header, *rest = rows
    ruled = [header, tuple("-" * width for width in widths), *rest]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in ruled]


def _named(found: TpuSettings | None) -> TpuSettings:
    if found is None:
        raise SettingsError(
            "the settings name no TPU; set tpu.node, tpu.api.project and tpu.api.zone; see docs/how-to/tpu.md"
        )
    return found
