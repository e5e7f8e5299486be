"""The policy's table: every state with every health and every set of facts, against a table written down here."""

from __future__ import annotations

import itertools

import pytest

from podline.base.errors import TpuGoneError, TpuInUseError, TpuSetupError
from podline.settings.tpu_settings import ApiSettings, Limits, MachineSettings, NodeSpec, TpuSettings
from podline.tpu.node import Health, State, Symptom
from podline.tpu.policy import RULES, Action, Fact, Situation, decide, facts_of, rule_for
from podline.tpu.tpu_log import Tried

LIMITS = Limits()
UNHEALTHY = Situation(state=State.READY, health=Health.TIMEOUT, patient=False)


FACT_SETS = [frozenset(facts) for count in range(len(Fact) + 1) for facts in itertools.combinations(Fact, count)]
EVERYTHING = [
    Situation(state=state, health=health, facts=facts, patient=patient)
    for state, health, facts, patient in itertools.product(State, Health, FACT_SETS, (True, False))
]

# What is done at once, and what when the patience is over, by the state alone …
BY_STATE = {
    **dict.fromkeys((State.ABSENT, State.PREEMPTED, State.TERMINATED), ("recreate", "recreate")),
    State.STOPPED: ("restart", "restart"),
    **dict.fromkeys((State.CREATING, State.STARTING, State.RESTARTING, State.REIMAGING), ("wait", "recreate")),
    **dict.fromkeys((State.REPAIRING, State.STOPPING), ("wait", "recreate")),
    **dict.fromkeys((State.DELETING, State.HIDING, State.HIDDEN, State.UNHIDING), ("wait", "give up")),
    **dict.fromkeys((State.UNKNOWN, State.STATE_UNSPECIFIED), ("wait", "restart")),
}
# … and for a node that is READY by its health.
BY_HEALTH = {**dict.fromkeys(Health, ("wait", "restart")), Health.HEALTHY: ("go", "go")}


@pytest.mark.parametrize("state", State)
def test_a_node_with_nothing_else_about_it(state: State) -> None:
    for health in Health:
        at_once, in_the_end = BY_HEALTH[health] if state is State.READY else BY_STATE[state]
        situation = Situation(state=state, health=health)
        assert decide(situation, Tried(), LIMITS).action == at_once
        assert decide(situation.model_copy(update={"patient": False}), Tried(), LIMITS).action == in_the_end


def test_there_is_a_rule_for_everything_and_no_rule_for_nothing() -> None:
    assert {rule_for(situation) for situation in EVERYTHING} == set(RULES)


def test_go_is_said_of_a_free_healthy_node_alone_and_nothing_is_repaired_under_another_user() -> None:
    gone = {State.ABSENT, State.PREEMPTED, State.TERMINATED}
    for situation in EVERYTHING:
        action, facts = decide(situation, Tried(), LIMITS).action, situation.facts
        free = situation.state is State.READY and situation.health is Health.HEALTHY and not facts
        assert (action is Action.GO) == free, situation
        if Fact.RESERVED in facts:
            assert action is (Action.WAIT if situation.patient else Action.GIVE_UP), situation
        elif Fact.LOCKED in facts and situation.state not in gone:
            assert action in {Action.WAIT, Action.GIVE_UP}, situation
        if action is Action.WAIT and not situation.patient:
            assert Fact.COOLING in facts, situation


@pytest.mark.parametrize(
    ("facts", "patient", "action", "error"),
    [
        ({Fact.RESERVED}, False, "give up", TpuInUseError),
        ({Fact.ABUSE}, True, "give up", TpuSetupError),
        ({Fact.LOCKED}, False, "give up", TpuInUseError),
        ({Fact.ANNOUNCED}, True, "wait", None),
        ({Fact.ANNOUNCED}, False, "give up", TpuGoneError),
        ({Fact.SYMPTOM}, True, "wait", None),
        ({Fact.SYMPTOM}, False, "restart", None),
        ({Fact.HUNG}, True, "restart", None),
        ({Fact.COOLING}, False, "wait", None),
        ({Fact.HUNG, Fact.LOCKED}, True, "wait", None),
        ({Fact.COOLING, Fact.SYMPTOM}, False, "restart", None),
    ],
)
def test_a_healthy_node_with_something_else_about_it(
    facts: set[Fact], patient: bool, action: str, error: type[Exception] | None
) -> None:
    situation = Situation(state=State.READY, health=Health.HEALTHY, facts=frozenset(facts), patient=patient)
    decision = decide(situation, Tried(), LIMITS)
    assert decision.action == action
    assert error is None or decision.error is error


@pytest.mark.parametrize(
    ("tried", "unhealthy", "preempted"),
    [
        (Tried(restarts=1), "restart", "recreate"),
        (Tried(restarts=2), "recreate", "recreate"),
        (Tried(restarts=2, recreations=1), "recreate", "recreate"),
        (Tried(restarts=2, recreations=2), "give up", "recreate"),
        (Tried(replacements=4), "restart", "recreate"),
        (Tried(replacements=5), "restart", "give up"),
    ],
)
def test_repairs_escalate_and_end_and_preemptions_are_counted_apart(
    tried: Tried, unhealthy: str, preempted: str
) -> None:
    assert decide(UNHEALTHY, tried, LIMITS).action == unhealthy
    decision = decide(Situation(state=State.PREEMPTED), tried, LIMITS)
    assert (decision.action, decision.error) == (preempted, TpuGoneError)


API = ApiSettings(project="p", zone="z")
SPEC = NodeSpec(accelerator_type="v4-8", runtime_version="r")
ON_THE_NODE = TpuSettings(node="n", api=API, spec=SPEC, machine=MachineSettings()).budget()
WITHOUT_SPEC = TpuSettings(node="n", api=API).budget()
SPENT = Tried(restarts=99, recreations=99, replacements=99)


@pytest.mark.parametrize(
    ("tried", "limits", "never", "situation", "words"),
    [
        (SPENT, LIMITS, "restart recreate", UNHEALTHY, "99 of 2 restarts"),
        (Tried(), ON_THE_NODE, "restart recreate", UNHEALTHY, "podline tpu recover"),
        (Tried(), WITHOUT_SPEC, "recreate", Situation(state=State.ABSENT), "tpu.spec is not set"),
    ],
    ids=["all spent", "on the TPU VM itself", "without a spec"],
)
def test_what_may_not_be_repaired_is_given_up(
    tried: Tried, limits: Limits, never: str, situation: Situation, words: str
) -> None:
    for each in EVERYTHING:
        assert decide(each, tried, limits).action not in never.split()
    decision = decide(situation, tried, limits)
    assert decision.action is Action.GIVE_UP
    assert words in decision.why


@pytest.mark.parametrize(
    ("kind", "age", "facts"),
    [
        ("HBM_OUT_OF_MEMORY", 89, {Fact.SYMPTOM}),
        ("HBM_OUT_OF_MEMORY", 90, set()),
        ("LOW_MEMORY", -3600, {Fact.SYMPTOM}),  # a clock that is ahead of ours
        ("SYMPTOM_TYPE_UNSPECIFIED", 0, set()),
        ("PROJECT_ABUSE", 3600, {Fact.ABUSE}),
        ("PROJECT_ABUSE", 90_000, set()),
    ],
)
def test_symptoms_count_while_they_are_fresh(kind: str, age: float, facts: set[Fact]) -> None:
    assert facts_of((Symptom(kind=kind, at=1e9 - age),), 1e9, LIMITS) == facts
