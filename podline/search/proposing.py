"""Proposes the next trial and limits for pruning, as functions of earlier trials, so that a killed search can resume.

The sampler is Optuna's tree-structured Parzen estimator (Bergstra et al., "Algorithms for Hyper-Parameter
Optimization", NIPS 2011). A new sampler is created for each trial, from the record and a seed by the trial's number.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from podline.base.frozen import Json
from podline.search.spaces import Space
from podline.search.trials import Trial

if TYPE_CHECKING:  # importing Optuna takes a second, which only searches need
    import optuna

# Number of random trials before the estimator is used.
_BY_CHANCE = 5
# Number of proposals in a row that were tried before, after which the space counts as exhausted.
_DRAWS = 20
# Number of complete trials, and share of the evaluations, before pruning starts.
_COMPLETE, _SPARED = 4, 0.25


def next_values(spaces: Sequence[Space], trials: Sequence[Trial], seed: int) -> dict[str, Json] | None:
    """Return new values for a trial; None if all values seem to have been tried.

    Args:
        spaces: the possible values.
        trials: all trials so far, in order.
        seed: seed of the search.
    """
    import optuna  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {space.path: _distribution(space) for space in spaces}
    known = [found for trial in trials if (found := _known(trial, distributions)) is not None]
    tried = [trial.values for trial in trials]
    for draw in range(_DRAWS):
        drawn = int(np.random.SeedSequence((seed, len(trials), draw)).generate_state(1)[0])
        sampler = optuna.samplers.TPESampler(seed=drawn, n_startup_trials=_BY_CHANCE)
        study = optuna.create_study(direction="minimize", sampler=sampler)
        study.add_trials(known)
        asked = study.ask(fixed_distributions=distributions).params
        values: dict[str, Json] = {space.path: space.rounded(asked[space.path]) for space in spaces}
        if values not in tried:
            return values
    return None


def _distribution(space: Space) -> optuna.distributions.BaseDistribution:
    from optuna.distributions import (  # noqa: PLC0415
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if space.choices:
        return CategoricalDistribution(space.choices)
    if space.whole:
        return IntDistribution(int(space.low), int(space.high), log=space.log)
    return FloatDistribution(space.low, space.high, log=space.log)


def _known(trial: Trial, distributions: Mapping[str, Any]) -> optuna.trial.FrozenTrial | None:
    """Convert a trial for Optuna, as pruned unless it is complete; None if it is outside the space."""
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415

    complete = trial.state == "complete"
    with contextlib.suppress(ValueError, TypeError):
        return create_trial(
            state=TrialState.COMPLETE if complete else TrialState.PRUNED,
            value=trial.value if complete else None,
            params=dict(trial.values),
            distributions=dict(distributions),
            intermediate_values=dict(enumerate(trial.evaluations)),
        )
    return None


def limits(trials: Sequence[Trial]) -> tuple[float | None, ...]:
    """Return the limit of a trial's best value after each evaluation; a trial above its limit is pruned.

    A limit is the median of the complete trials at the same evaluation, as in Optuna's ``MedianPruner``.
    """
    complete = [trial.evaluations for trial in trials if trial.state == "complete"]
    if len(complete) < _COMPLETE:
        return ()
    most = max(map(len, complete))
    medians = (statistics.median(each[place] for each in complete if place < len(each)) for place in range(most))
    return tuple(median if place >= _SPARED * most else None for place, median in enumerate(medians))
