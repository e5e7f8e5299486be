"""The gate over random time lines: it ends, in what it says it ends in, and does nothing that it must not."""

from __future__ import annotations

import tempfile
from pathlib import Path

from google.cloud import tpu_v2
from google.rpc import code_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from standin.bench import NOON, SPEC, Bench, bench
from standin.cloud import NODE
from standin.timeline import Attempt, Outage, Phase, Script
from turned_clock import TurnedClock

from podline.base.errors import PodlineError
from podline.settings.tpu_settings import Limits
from podline.tpu.node import Health, State

LIMITS = Limits(queue=3600)
# Every rung of the ladder with the longest waits that it may have: for the node, for the API, for its operations.
LONGEST = 60 * 3600.0

STATES = sorted(set(State) - {State.ABSENT})
DURATIONS = st.sampled_from([5.0, 45.0, 300.0, 1100.0, 1300.0, 5000.0])
PHASES = st.builds(
    Phase,
    state=st.one_of(st.just("READY"), st.sampled_from(STATES)),
    health=st.one_of(st.just("HEALTHY"), st.sampled_from(sorted(Health))),
    seconds=DURATIONS,
    symptom=st.one_of(st.just(""), st.just(""), st.sampled_from(sorted(tpu_v2.Symptom.SymptomType.__members__))),
)
LIVES = st.lists(PHASES, min_size=1, max_size=5).map(tuple)
CODES = st.sampled_from(
    [
        (code_pb2.OK, ""),
        (code_pb2.OK, ""),
        (code_pb2.INTERNAL, "internal"),
        (code_pb2.UNAVAILABLE, "unavailable"),
        (code_pb2.FAILED_PRECONDITION, "not in this state"),
        (code_pb2.RESOURCE_EXHAUSTED, "There is no more capacity in the zone"),
        (code_pb2.RESOURCE_EXHAUSTED, "Quota limit has been exceeded"),
        (code_pb2.NOT_FOUND, "not found"),
        (code_pb2.INVALID_ARGUMENT, "no such thing"),
    ]
)
ATTEMPTS = st.lists(
    st.builds(
        lambda seconds, life, code, at_once: Attempt(seconds, life, *code, at_once=at_once),
        DURATIONS,
        LIVES,
        CODES,
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
OUTAGES = st.lists(
    st.builds(
        lambda start, length, lost: Outage(start, start + length, lost=lost),
        st.floats(0, 8000),
        st.sampled_from([1.0, 60.0, 600.0, 1500.0]),
        st.booleans(),
    ),
    max_size=3,
).map(tuple)
SCRIPTS = st.builds(
    Script,
    life=st.one_of(st.none(), LIVES),
    stops=ATTEMPTS,
    starts=ATTEMPTS,
    deletes=ATTEMPTS,
    creates=ATTEMPTS,
    turns=ATTEMPTS,
    outages=OUTAGES,
    spot=st.booleans(),
)


class LoopError(BaseException):
    """The gate goes on and on."""


class _Bounded(TurnedClock):
    """A clock that does not go beyond the time at which everything must have ended."""

    def turn(self, seconds: float) -> None:
        super().turn(seconds)
        if self.now() > NOON + LONGEST:
            raise LoopError


def passes(it: Bench) -> bool:
    """Whether the gate lets through; what it lets through to is looked at from behind."""
    failure = None
    try:
        with it.admitted():
            node = it.cloud.get_node(NODE)
            assert (node.state.name, node.health.name) == ("READY", "HEALTHY")
            for symptom in node.symptoms:
                age = it.clock.now() - symptom.create_time.timestamp()
                assert symptom.symptom_type.name == "SYMPTOM_TYPE_UNSPECIFIED" or age >= LIMITS.symptom_age
    except PodlineError as error:
        failure = str(error)
    if failure is None:
        assert it.events()[-2:] == ["go", "leave"]
        return True
    assert "\n" not in failure
    assert it.events()[-1] == "give up"
    assert it.tpu_log.entries[-1].what == failure
    return False


@settings(max_examples=40, deadline=None)
@given(script=SCRIPTS, queued=st.booleans())
def test_it_ends_within_its_budgets(script: Script, queued: bool) -> None:
    spec = SPEC.model_copy(update={"queued": queued})
    with tempfile.TemporaryDirectory() as folder:
        with bench(Path(folder), script, _Bounded(NOON), spec=spec, limits=LIMITS) as it:
            for _attempt in range(3):
                if passes(it):
                    break
        tried = it.tpu_log.tried()
        assert tried.restarts <= LIMITS.restart.attempts
        assert tried.recreations <= LIMITS.recreate.attempts
        assert tried.replacements <= LIMITS.preemptions
