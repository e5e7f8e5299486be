"""Simulated annealing over a run's evaluations. Nothing here needs TensorFlow.

After each evaluation the state is accepted or rejected (Kirkpatrick, Gelatt, Vecchi: "Optimization by Simulated
Annealing", Science 220, 1983, with Metropolis's rule): a lower energy always, a higher one with the probability
exp(-difference / temperature). Training goes on from the last accepted state.

As in :mod:`podline.training.plateau`, the last line in ``metrics.jsonl`` is all that is remembered. The draw comes from
(seed, number of the decision), so a run that goes on decides as it would have.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from podline.data.order import random_uniform
from podline.documents.metrics_log import AnnealingLine, EvaluationLine, EventKind, MetricsLine
from podline.recipes.settings import AnnealingSettings


class Annealing:
    """Accepts and rejects the states of one run."""

    def __init__(
        self,
        settings: AnnealingSettings | None,
        seed: int,
        total_steps: int,
        lines: Iterable[MetricsLine],
        write: Callable[[AnnealingLine], None],
        tell: Callable[[EventKind, int, str], None],
        go_back: Callable[[int], None],
    ) -> None:
        """Goes on where a run was left.

        Args:
            settings: energy and temperature; None accepts everything and says nothing.
            seed: of the draws.
            total_steps: over which the temperature falls.
            lines: of the run's ``metrics.jsonl`` so far.
            write: what is done with a decision.
            tell: told of a decision: what happened, at which step, in words.
            go_back: sets the state to that of the step that was accepted last.
        """
        self._settings, self._seed, self._total = settings, seed, total_steps
        self._write, self._tell, self._go_back = write, tell, go_back
        self._last = next((line for line in reversed([*lines]) if isinstance(line, AnnealingLine)), None)

    def accepted(self) -> int | None:
        """The step whose state was accepted last; its checkpoint must be kept."""
        return self._last.state if self._last else None

    def decide(self, evaluation: EvaluationLine) -> None:
        """Accepts the state that was evaluated, or goes back.

        Raises:
            StoreError: the accepted state cannot be read …
            ArtifactError: … or is no longer what was written.
        """
        if self._settings is None:
            return
        self._last = line = judged(self._settings, self._seed, self._total, self._last, evaluation)
        if not line.accepted:
            self._go_back(line.state)
        self._write(line)
        self._tell("accepted" if line.accepted else "rejected", line.step, in_words(line))


def judged(
    settings: AnnealingSettings, seed: int, total_steps: int, last: AnnealingLine | None, evaluation: EvaluationLine
) -> AnnealingLine:
    """What becomes of the state that was evaluated; the first one is accepted whatever it is.

    Args:
        settings: energy and temperature.
        seed: of the draw.
        total_steps: over which the temperature falls, by the same factor in each step.
        last: the decision before; None before the first.
        evaluation: what is known of the state.
    """
    energy = evaluation.loss if settings.energy == "loss" else 1 - evaluation.accuracy
    temperature = settings.temperature * settings.final ** (evaluation.step / total_steps)
    number = last.number + 1 if last else 0
    rise = max(0.0, energy - last.against) if last else 0.0
    probability = math.exp(-rise / temperature)
    draw = float(random_uniform(seed, "annealing", number, [0])[0])
    if last is None or draw < probability:
        against, state, accepted = energy, evaluation.step, True
    else:
        against, state, accepted = last.against, last.state, False
    return AnnealingLine(
        step=evaluation.step,
        number=number,
        energy=energy,
        rise=rise,
        temperature=temperature,
        probability=probability,
        draw=draw,
        accepted=accepted,
        state=state,
        against=against,
        time=time.time(),
    )


def in_words(line: AnnealingLine) -> str:
    """A decision in words."""
    if line.rise == 0:
        return f"step {line.step}: energy {line.energy:.4f} is no higher than before: accepted"
    why = f"is {line.rise:.4f} higher: accepted with probability {line.probability:.2f} at temperature"
    outcome = "accepted" if line.accepted else f"rejected; going back to the state of step {line.state}"
    return f"step {line.step}: energy {line.energy:.4f} {why} {line.temperature:.2g}, draw {line.draw:.2f}: {outcome}"
