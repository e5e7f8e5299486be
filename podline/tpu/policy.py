"""The gate's policy: one table, in which the first matching rule wins.

A rule has an immediate action. If that is to wait, the rule also has an action for when the longest wait is over.
Repairs escalate within their budgets: restart, then recreate, then give up. This module only decides; it inspects no
node, clock or file.

Sources: an unhealthy runtime of a READY node often stays unhealthy, and a preempted node cannot be used again, but
occupies quota (both known from SkyPilot and from practice). The waits of 20 minutes, the polls of 30 seconds and the
90 seconds after an out-of-memory symptom are TensorFlow's own (``tensorflow/python/tpu/client``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podline.base.errors import PodlineError, TpuGoneError, TpuInUseError, TpuSetupError, TpuUnhealthyError
from podline.base.frozen import Frozen
from podline.settings.tpu_settings import Limits
from podline.tpu.node import GONE, Health, State, Symptom
from podline.tpu.tpu_log import Tried


class Action(StrEnum):
    """An action of the gate."""

    GO = "go"
    WAIT = "wait"
    RESTART = "restart"
    RECREATE = "recreate"
    GIVE_UP = "give up"


class Fact(StrEnum):
    """A condition of a TPU besides its state and its health."""

    RESERVED = "reserved by another"
    ABUSE = "abuse reported"
    LOCKED = "lock held"
    ANNOUNCED = "end announced"
    SYMPTOM = "fresh symptom"
    HUNG = "last use hung"
    COOLING = "cooling down"


class Situation(Frozen):
    """The state on which a decision depends; ``patient`` is False once the longest wait is over."""

    state: State
    health: Health = Health.HEALTH_UNSPECIFIED
    facts: frozenset[Fact] = frozenset()
    patient: bool = True


@dataclass(frozen=True)
class PolicyRule:
    """A row of the table.

    Attributes:
        do: the immediate action.
        why: the reason, as the text after "because".
        states: the states that the rule applies to; None for all.
        healths: the kinds of health that the rule applies to; None for all.
        fact: a fact that must be true; None for no condition.
        then: the action once the longest wait is over; None if the condition ends by itself, or ``do`` is not to wait.
        error: the error class for giving up.
    """

    do: Action
    why: str
    states: frozenset[State] | None = None
    healths: frozenset[Health] | None = None
    fact: Fact | None = None
    then: Action | None = None
    error: type[PodlineError] = TpuUnhealthyError

    def matches(self, situation: Situation) -> bool:
        """Return whether this row applies to the situation."""
        return (
            (self.states is None or situation.state in self.states)
            and (self.healths is None or situation.health in self.healths)
            and (self.fact is None or self.fact in situation.facts)
        )


# Reports of abuse stay valid for at least a day; an older report counts as resolved.
_ABUSE_SECONDS = 86_400.0
_READY, _HEALTHY = frozenset({State.READY}), frozenset({Health.HEALTHY})
_HIDDEN = frozenset({State.HIDING, State.HIDDEN, State.UNHIDING})
_UNDERWAY = frozenset(
    {State.CREATING, State.STARTING, State.RESTARTING, State.REIMAGING, State.REPAIRING, State.STOPPING}
)
_UNCLEAR = frozenset({State.UNKNOWN, State.STATE_UNSPECIFIED})
_UNCLEAR_HEALTH = frozenset({Health.HEALTH_UNSPECIFIED})
_MAINTENANCE = frozenset({Health.UNHEALTHY_MAINTENANCE})
_UNHEALTHY = frozenset({Health.UNHEALTHY_TENSORFLOW, Health.TIMEOUT})
_WAIT, _RESTART, _RECREATE, _GIVE_UP = Action.WAIT, Action.RESTART, Action.RECREATE, Action.GIVE_UP

RULES: tuple[PolicyRule, ...] = (
    PolicyRule(_WAIT, "another run on this machine uses it", fact=Fact.RESERVED, then=_GIVE_UP, error=TpuInUseError),
    PolicyRule(_GIVE_UP, "Google reports abuse in the project", fact=Fact.ABUSE, error=TpuSetupError),
    PolicyRule(_RECREATE, "it was preempted, cannot be used again, and occupies quota", GONE, error=TpuGoneError),
    PolicyRule(_RECREATE, "the node does not exist", frozenset({State.ABSENT}), error=TpuSetupError),
    PolicyRule(_WAIT, "it is being deleted", frozenset({State.DELETING}), then=_GIVE_UP),
    PolicyRule(_WAIT, "it is hidden", _HIDDEN, then=_GIVE_UP, error=TpuSetupError),
    PolicyRule(
        _WAIT,
        "a living process uses it, which must not be stopped",
        fact=Fact.LOCKED,
        then=_GIVE_UP,
        error=TpuInUseError,
    ),
    PolicyRule(_RESTART, "it is stopped", frozenset({State.STOPPED})),
    PolicyRule(_WAIT, "it is being created, started, stopped or repaired", _UNDERWAY, then=_RECREATE),
    PolicyRule(_WAIT, "its state is unknown", _UNCLEAR, then=_RESTART),
    PolicyRule(_WAIT, "its health is unknown so far", _READY, _UNCLEAR_HEALTH, then=_RESTART),
    PolicyRule(_WAIT, "it is under maintenance and works again afterwards", _READY, _MAINTENANCE, then=_RESTART),
    PolicyRule(_WAIT, "its runtime is not healthy", _READY, _UNHEALTHY, then=_RESTART),
    PolicyRule(_WAIT, "its end is announced", _READY, _HEALTHY, Fact.ANNOUNCED, then=_GIVE_UP, error=TpuGoneError),
    PolicyRule(_RESTART, "it is reported healthy, but its last use hung", _READY, _HEALTHY, Fact.HUNG),
    PolicyRule(_WAIT, "it had a symptom a short time ago", _READY, _HEALTHY, Fact.SYMPTOM, then=_RESTART),
    PolicyRule(_WAIT, "its last user has just left", _READY, _HEALTHY, Fact.COOLING),
    PolicyRule(Action.GO, "it is ready, healthy and free", _READY, _HEALTHY),
)


@dataclass(frozen=True)
class Decision:
    """An action and its reason; ``error`` is the class to raise for GIVE_UP."""

    action: Action
    why: str
    error: type[PodlineError]


def rule_for(situation: Situation) -> PolicyRule:
    """Return the first rule that matches; the table has a rule for every situation."""
    return next(rule for rule in RULES if rule.matches(situation))


def decide(situation: Situation, tried: Tried, limits: Limits) -> Decision:
    """Return the action of the matching rule; a repair without budget becomes the next stronger action.

    Args:
        situation: the TPU's situation.
        tried: the numbers of repairs so far.
        limits: the budgets of repairs.
    """
    rule = rule_for(situation)
    action = rule.do if situation.patient or rule.then is None else rule.then
    if action is Action.RESTART and tried.restarts >= limits.restart.attempts:
        action = Action.RECREATE
    if action is Action.RECREATE and _spent(situation, tried, limits):
        return Decision(Action.GIVE_UP, f"{rule.why}; {_tried_in_words(tried, limits)}", rule.error)
    return Decision(action, rule.why, rule.error)


def facts_of(symptoms: tuple[Symptom, ...], now: float, limits: Limits) -> frozenset[Fact]:
    """Return the facts that follow from a node's symptoms; symptoms that are too old at ``now`` are ignored."""
    facts = set()
    for symptom in symptoms:
        if symptom.kind == "PROJECT_ABUSE" and symptom.age(now) < _ABUSE_SECONDS:
            facts.add(Fact.ABUSE)
        elif symptom.kind != "SYMPTOM_TYPE_UNSPECIFIED" and symptom.age(now) < limits.symptom_age:
            facts.add(Fact.SYMPTOM)
    return frozenset(facts)


def table() -> list[tuple[str, ...]]:
    """Return the table as rows of text; the first row has the titles of the columns."""
    header = ("state", "health", "and", "do", "in the end", "because")
    rows = [
        (_names(rule.states), _names(rule.healths), rule.fact or "", rule.do, rule.then or "", rule.why)
        for rule in RULES
    ]
    return [header, *rows]


def _spent(situation: Situation, tried: Tried, limits: Limits) -> bool:
    if situation.state in GONE:
        return tried.replacements >= limits.preemptions
    return tried.recreations >= limits.recreate.attempts


def _tried_in_words(tried: Tried, limits: Limits) -> str:
    if limits.recreate.attempts == limits.preemptions == 0:
        return (
            "no new node can be created: tpu.spec is not set, or this machine is the node itself (then run `podline "
            "tpu recover` on another machine)"
        )
    return (
        f"tried: {tried.restarts} of {limits.restart.attempts} restarts, {tried.recreations} of "
        f"{limits.recreate.attempts} new nodes, {tried.replacements} of {limits.preemptions} for preempted ones"
    )


def _names(names: frozenset[State] | frozenset[Health] | None) -> str:
    return "any" if names is None else ", ".join(sorted(names))
