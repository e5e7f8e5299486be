"""The gate's policy: one table, first match wins.

A rule says what to do at once and, where that is to wait, what to do when the patience is over. Repairs escalate
within their budgets: restart, then recreate, then give up. Nothing here looks at a node, a clock or a file.

Sources: READY with an unhealthy runtime often does not clear by itself, and a preempted node can neither be used again
nor does it free its quota (both known from SkyPilot and from the field); the waits of 20 minutes, the polls of 30
seconds and the 90 seconds after an out-of-memory symptom are TensorFlow's own (``tensorflow/python/tpu/client``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podline.errors import PodlineError, TpuGoneError, TpuInUseError, TpuSetupError, TpuUnhealthyError
from podline.frozen import Frozen
from podline.tpu.clock import in_words
from podline.tpu.node import Health, State, Symptom, SymptomKind
from podline.tpu.tpu_log import Tried
from podline.tpu_settings import Limits


class Action(StrEnum):
    """What the gate does."""

    GO = "go"
    WAIT = "wait"
    RESTART = "restart"
    RECREATE = "recreate"
    GIVE_UP = "give up"


class Fact(StrEnum):
    """What can be true of a TPU besides its state and its health."""

    RESERVED = "reserved by another"
    ABUSE = "abuse reported"
    LOCKED = "lock held"
    ANNOUNCED = "end announced"
    SYMPTOM = "fresh symptom"
    HUNG = "last use hung"
    COOLING = "cooling down"


class Situation(Frozen):
    """All that a decision depends on; ``patient`` while the wait is younger than its patience."""

    state: State
    health: Health = Health.HEALTH_UNSPECIFIED
    facts: frozenset[Fact] = frozenset()
    patient: bool = True


@dataclass(frozen=True)
class PolicyRule:
    """A row of the table.

    Attributes:
        do: at once.
        why: for people, in words that follow "because".
        states: the rule is for these; None is every one.
        healths: the rule is for these; None is every one.
        fact: which must be true; None asks for none.
        then: what to do when the patience is over; None is to go on waiting, for what ends by itself.
        error: what giving up raises.
    """

    do: Action
    why: str
    states: frozenset[State] | None = None
    healths: frozenset[Health] | None = None
    fact: Fact | None = None
    then: Action | None = None
    error: type[PodlineError] = TpuUnhealthyError

    def matches(self, situation: Situation) -> bool:
        """Whether this row is about the situation."""
        return (
            (self.states is None or situation.state in self.states)
            and (self.healths is None or situation.health in self.healths)
            and (self.fact is None or self.fact in situation.facts)
        )


GONE = frozenset({State.PREEMPTED, State.TERMINATED})
"""States that a node cannot leave, but by being deleted."""

# Nobody takes a project's abuse back within a day; what is older is taken for settled.
_ABUSE_SECONDS = 86_400.0
_READY = frozenset({State.READY})
_HIDDEN = frozenset({State.HIDING, State.HIDDEN, State.UNHIDING})
_UNDERWAY = frozenset(
    {State.CREATING, State.STARTING, State.RESTARTING, State.REIMAGING, State.REPAIRING, State.STOPPING}
)
_UNCLEAR = frozenset({State.UNKNOWN, State.STATE_UNSPECIFIED})
_HEALTHY = frozenset({Health.HEALTHY})
_UNHEALTHY = frozenset({Health.UNHEALTHY_TENSORFLOW, Health.TIMEOUT})

RULES: tuple[PolicyRule, ...] = (
    PolicyRule(
        Action.WAIT,
        "another run on this machine has it",
        fact=Fact.RESERVED,
        then=Action.GIVE_UP,
        error=TpuInUseError,
    ),
    PolicyRule(Action.GIVE_UP, "Google reports abuse in the project", fact=Fact.ABUSE, error=TpuSetupError),
    PolicyRule(
        Action.RECREATE, "it was taken away, cannot be used again, and holds quota", states=GONE, error=TpuGoneError
    ),
    PolicyRule(Action.RECREATE, "there is no such node", states=frozenset({State.ABSENT}), error=TpuSetupError),
    PolicyRule(Action.WAIT, "it is being deleted", states=frozenset({State.DELETING}), then=Action.GIVE_UP),
    PolicyRule(Action.WAIT, "it is hidden", states=_HIDDEN, then=Action.GIVE_UP, error=TpuSetupError),
    PolicyRule(
        Action.WAIT,
        "a living process has it, and nothing is stopped under one",
        fact=Fact.LOCKED,
        then=Action.GIVE_UP,
        error=TpuInUseError,
    ),
    PolicyRule(Action.RESTART, "it is stopped", states=frozenset({State.STOPPED})),
    PolicyRule(Action.WAIT, "it is on its way", states=_UNDERWAY, then=Action.RECREATE),
    PolicyRule(Action.WAIT, "its state is not known", states=_UNCLEAR, then=Action.RESTART),
    PolicyRule(
        Action.WAIT,
        "its health is not known yet",
        states=_READY,
        healths=frozenset({Health.HEALTH_UNSPECIFIED}),
        then=Action.RESTART,
    ),
    PolicyRule(
        Action.WAIT,
        "it is under maintenance and goes on afterwards",
        states=_READY,
        healths=frozenset({Health.UNHEALTHY_MAINTENANCE}),
        then=Action.RESTART,
    ),
    PolicyRule(Action.WAIT, "its runtime is not healthy", states=_READY, healths=_UNHEALTHY, then=Action.RESTART),
    PolicyRule(
        Action.WAIT,
        "its end is announced",
        states=_READY,
        healths=_HEALTHY,
        fact=Fact.ANNOUNCED,
        then=Action.GIVE_UP,
        error=TpuGoneError,
    ),
    PolicyRule(Action.RESTART, "it says that it is healthy, but its last use hung", _READY, _HEALTHY, Fact.HUNG),
    PolicyRule(Action.WAIT, "a symptom is fresh", _READY, _HEALTHY, Fact.SYMPTOM, then=Action.RESTART),
    PolicyRule(Action.WAIT, "its last user has only just left", _READY, _HEALTHY, Fact.COOLING),
    PolicyRule(Action.GO, "it is ready, healthy and free", _READY, _HEALTHY),
)


@dataclass(frozen=True)
class Decision:
    """What to do, and why; ``error`` is what giving up raises."""

    action: Action
    why: str
    error: type[PodlineError]


def rule_for(situation: Situation) -> PolicyRule:
    """The first row of the table that matches; there is one for every situation."""
    return next(rule for rule in RULES if rule.matches(situation))


def decide(situation: Situation, tried: Tried, limits: Limits) -> Decision:
    """What the table says, within the budgets.

    Args:
        situation: what is the case.
        tried: the repairs that the run has behind it.
        limits: how many it may have.
    """
    rule = rule_for(situation)
    action = rule.do if situation.patient or rule.then is None else rule.then
    if action is Action.RESTART and tried.restarts >= limits.restart.attempts:
        action = Action.RECREATE
    why = rule.why
    if action is Action.RECREATE and _spent(situation, tried, limits):
        action, why = Action.GIVE_UP, f"{rule.why}; {_tried_in_words(tried, limits)}"
    return Decision(action, why, rule.error)


def facts_of(symptoms: tuple[Symptom, ...], now: float, limits: Limits) -> frozenset[Fact]:
    """What a node's symptoms amount to at a time; old ones amount to nothing."""
    facts = set()
    for symptom in symptoms:
        if symptom.kind is SymptomKind.PROJECT_ABUSE and symptom.age(now) < _ABUSE_SECONDS:
            facts.add(Fact.ABUSE)
        elif symptom.kind is not SymptomKind.SYMPTOM_TYPE_UNSPECIFIED and symptom.age(now) < limits.symptom_age:
            facts.add(Fact.SYMPTOM)
    return frozenset(facts)


def explain(limits: Limits) -> str:
    """The table and the budgets as text, for people."""
    header = ("state", "health", "and", "do", "in the end", "because")
    rows = [
        (
            _names(rule.states),
            _names(rule.healths),
            rule.fact or "",
            rule.do,
            rule.then or "",
            rule.why,
        )
        for rule in RULES
    ]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, "", _limits_in_words(limits)])


def _spent(situation: Situation, tried: Tried, limits: Limits) -> bool:
    if situation.state in GONE:
        return tried.replacements >= limits.preemptions
    return tried.recreations >= limits.recreate.attempts


def _tried_in_words(tried: Tried, limits: Limits) -> str:
    if limits.recreate.attempts == limits.preemptions == 0:
        return (
            "a new node cannot be made from here: the settings have no spec, or this machine is the node itself "
            "(then try `podline tpu recover` from another one)"
        )
    return (
        f"tried: {tried.restarts} of {limits.restart.attempts} restarts, {tried.recreations} of "
        f"{limits.recreate.attempts} new nodes, {tried.replacements} of {limits.preemptions} for preempted ones"
    )


def _names(names: frozenset[State] | frozenset[Health] | None) -> str:
    return "any" if names is None else ", ".join(sorted(names))


def _limits_in_words(limits: Limits) -> str:
    restart, recreate = limits.restart, limits.recreate
    return f"""\
The first row that matches counts. ABSENT is a node that the API does not know.
A node that is waited for is looked at every {in_words(limits.poll)}. What it comes to in the end is done after \
{in_words(limits.patience)}, {in_words(restart.patience)} after a restart, {in_words(recreate.patience)} after \
a new node.
Restart: at most {restart.attempts} in a run, {in_words(restart.pause)} between stop and start; when they are spent, \
recreate.
Recreate: at most {recreate.attempts} in a run, and {limits.preemptions} for preempted nodes, \
{in_words(recreate.pause)} between delete and create; when they are spent, give up.
A symptom is fresh for {in_words(limits.symptom_age)}. The cool-down after a user takes {in_words(limits.cool_down)}."""
