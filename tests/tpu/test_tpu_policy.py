"""The policy's table: every state with every health and every set of facts, against a table written down here."""

from __future__ import annotations

import itertools

import pytest

from podline.errors import TpuGoneError, TpuInUseError, TpuSetupError, TpuUnhealthyError
from podline.tpu.node import Health, State, Symptom
from podline.tpu.policy import RULES, Action, Fact, Situation, decide, facts_of, rule_for
from podline.tpu.tpu_log import Tried
from podline.tpu_settings import ApiSettings, Limits, MachineSettings, NodeSpec, TpuSettings

LIMITS = Limits()


FACT_SETS = [
    frozenset(facts) for count in range(len(Fact) + 1) for facts in itertools.combinations(sorted(Fact), count)
]
EVERYTHING = [
    Situation(state=state, health=health, facts=facts, patient=patient)
    for state in State
    for health in Health
    for facts in FACT_SETS
    for patient in (True, False)
]

# What is done at once, and what when the patience is over, by the state alone …
BY_STATE = {
    State.ABSENT: ("recreate", "recreate"),
    State.PREEMPTED: ("recreate", "recreate"),
    State.TERMINATED: ("recreate", "recreate"),
    State.STOPPED: ("restart", "restart"),
    State.CREATING: ("wait", "recreate"),
    State.STARTING: ("wait", "recreate"),
    State.RESTARTING: ("wait", "recreate"),
    State.REIMAGING: ("wait", "recreate"),
    State.REPAIRING: ("wait", "recreate"),
    State.STOPPING: ("wait", "recreate"),
    State.DELETING: ("wait", "give up"),
    State.HIDING: ("wait", "give up"),
    State.HIDDEN: ("wait", "give up"),
    State.UNHIDING: ("wait", "give up"),
    State.UNKNOWN: ("wait", "restart"),
    State.STATE_UNSPECIFIED: ("wait", "restart"),
}
# … and for a node that is READY by its health.
BY_HEALTH = {
    Health.HEALTHY: ("go", "go"),
    Health.HEALTH_UNSPECIFIED: ("wait", "restart"),
    Health.TIMEOUT: ("wait", "restart"),
    Health.UNHEALTHY_TENSORFLOW: ("wait", "restart"),
    Health.UNHEALTHY_MAINTENANCE: ("wait", "restart"),
}


def test_the_table_here_has_every_state_and_every_health() -> None:
    assert {*BY_STATE, State.READY} == set(State)
    assert set(BY_HEALTH) == set(Health)


@pytest.mark.parametrize(("state", "health"), list(itertools.product(State, Health)))
def test_a_node_with_nothing_else_about_it(state: State, health: Health) -> None:
    at_once, in_the_end = BY_HEALTH[health] if state is State.READY else BY_STATE[state]
    situation = Situation(state=state, health=health)
    assert decide(situation, Tried(), LIMITS).action == at_once
    assert decide(situation.model_copy(update={"patient": False}), Tried(), LIMITS).action == in_the_end


def test_there_is_a_rule_for_everything_and_no_rule_for_nothing() -> None:
    used = {rule_for(situation) for situation in EVERYTHING}
    assert used == set(RULES)


def test_go_is_said_of_a_ready_healthy_and_free_node_and_of_no_other() -> None:
    for situation in EVERYTHING:
        decision = decide(situation, Tried(), LIMITS)
        free = situation.state is State.READY and situation.health is Health.HEALTHY and not situation.facts
        assert (decision.action is Action.GO) == free, situation


def test_nothing_is_stopped_or_deleted_under_another_user() -> None:
    for situation in EVERYTHING:
        action = decide(situation, Tried(), LIMITS).action
        if Fact.RESERVED in situation.facts:
            assert action is (Action.WAIT if situation.patient else Action.GIVE_UP), situation
        elif Fact.LOCKED in situation.facts and situation.state not in {
            State.ABSENT,
            State.PREEMPTED,
            State.TERMINATED,
        }:
            assert action in {Action.WAIT, Action.GIVE_UP}, situation


def test_impatience_never_waits_but_for_a_cool_down() -> None:
    for situation in EVERYTHING:
        if not situation.patient and decide(situation, Tried(), LIMITS).action is Action.WAIT:
            assert Fact.COOLING in situation.facts, situation


@pytest.mark.parametrize(
    ("facts", "patient", "action", "error"),
    [
        ({Fact.RESERVED}, True, "wait", None),
        ({Fact.RESERVED}, False, "give up", TpuInUseError),
        ({Fact.ABUSE}, True, "give up", TpuSetupError),
        ({Fact.LOCKED}, True, "wait", None),
        ({Fact.LOCKED}, False, "give up", TpuInUseError),
        ({Fact.ANNOUNCED}, True, "wait", None),
        ({Fact.ANNOUNCED}, False, "give up", TpuGoneError),
        ({Fact.SYMPTOM}, True, "wait", None),
        ({Fact.SYMPTOM}, False, "restart", None),
        ({Fact.HUNG}, True, "restart", None),
        ({Fact.COOLING}, True, "wait", None),
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


def test_repairs_escalate_and_end() -> None:
    unhealthy = Situation(state=State.READY, health=Health.TIMEOUT, patient=False)
    assert decide(unhealthy, Tried(restarts=1), LIMITS).action is Action.RESTART
    assert decide(unhealthy, Tried(restarts=2), LIMITS).action is Action.RECREATE
    assert decide(unhealthy, Tried(restarts=2, recreations=1), LIMITS).action is Action.RECREATE
    spent = decide(unhealthy, Tried(restarts=2, recreations=2), LIMITS)
    assert spent.action is Action.GIVE_UP
    assert spent.error is TpuUnhealthyError
    assert "2 of 2 restarts, 2 of 2 new nodes" in spent.why


def test_preemptions_and_failures_are_counted_apart() -> None:
    preempted = Situation(state=State.PREEMPTED)
    unhealthy = Situation(state=State.READY, health=Health.TIMEOUT, patient=False)
    many = Tried(replacements=5)
    assert decide(preempted, many, LIMITS).action is Action.GIVE_UP
    assert decide(preempted, many, LIMITS).error is TpuGoneError
    assert decide(unhealthy, many, LIMITS).action is Action.RESTART
    broken = Tried(restarts=2, recreations=2)
    assert decide(preempted, broken, LIMITS).action is Action.RECREATE
    assert decide(unhealthy, broken, LIMITS).action is Action.GIVE_UP


def test_every_situation_ends_in_giving_up_when_all_is_spent() -> None:
    spent = Tried(restarts=99, recreations=99, replacements=99)
    for situation in EVERYTHING:
        assert decide(situation, spent, LIMITS).action in {Action.GO, Action.WAIT, Action.GIVE_UP}


def test_on_the_tpu_vm_itself_nothing_is_repaired() -> None:
    api = ApiSettings(project="p", zone="z")
    spec = NodeSpec(accelerator_type="v4-8", runtime_version="r")
    here = TpuSettings(node="n", api=api, spec=spec, machine=MachineSettings())
    for situation in EVERYTHING:
        decision = decide(situation, Tried(), here.budget)
        assert decision.action in {Action.GO, Action.WAIT, Action.GIVE_UP}
    decision = decide(Situation(state=State.READY, health=Health.TIMEOUT, patient=False), Tried(), here.budget)
    assert "podline tpu recover" in decision.why


def test_without_a_spec_nothing_is_deleted() -> None:
    settings = TpuSettings(node="n", api=ApiSettings(project="p", zone="z"))
    for situation in EVERYTHING:
        assert decide(situation, Tried(), settings.budget).action is not Action.RECREATE
    absent = decide(Situation(state=State.ABSENT), Tried(), settings.budget)
    assert absent.error is TpuSetupError
    assert "no spec" in absent.why


@pytest.mark.parametrize(
    ("kind", "age", "facts"),
    [
        ("HBM_OUT_OF_MEMORY", 89, {Fact.SYMPTOM}),
        ("HBM_OUT_OF_MEMORY", 90, set()),
        ("OUT_OF_MEMORY", 0, {Fact.SYMPTOM}),
        ("EXECUTE_TIMED_OUT", 10, {Fact.SYMPTOM}),
        ("MESH_BUILD_FAIL", 10, {Fact.SYMPTOM}),
        ("LOW_MEMORY", 10, {Fact.SYMPTOM}),
        ("LOW_MEMORY", -3600, {Fact.SYMPTOM}),  # a clock that is ahead of ours
        ("SYMPTOM_TYPE_UNSPECIFIED", 0, set()),
        ("PROJECT_ABUSE", 3600, {Fact.ABUSE}),
        ("PROJECT_ABUSE", 90_000, set()),
    ],
)
def test_symptoms_count_while_they_are_fresh(kind: str, age: float, facts: set[Fact]) -> None:
    assert facts_of((Symptom(kind=kind, at=1e9 - age),), 1e9, LIMITS) == facts
