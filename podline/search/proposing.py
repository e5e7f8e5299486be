"""The next trial and the pruning of bad ones: functions of earlier trials, so that a killed search can resume.

The sampler is Optuna's tree-structured Parzen estimator (Bergstra et al., "Algorithms for Hyper-Parameter
Optimization", NIPS 2011). It is made anew for each trial, from the record and a seed by the number of the trial.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from podline.frozen import Json
from podline.search.spaces import Space
from podline.search.trials import Trial

if TYPE_CHECKING:  # a second to import, for a search alone
    import optuna

# So many trials are drawn by chance before the estimator has enough to go by.
_BY_CHANCE = 5
# How often values are drawn that were not tried before, until the space counts as exhausted.
_DRAWS = 20
# Nothing is pruned before so many trials are complete, nor in this share of the evaluations.
_COMPLETE, _SPARED = 4, 0.25


def next_values(spaces: Sequence[Space], trials: Sequence[Trial], seed: int) -> dict[str, Json] | None:
    """Return values that were not tried yet; None if there seem to be no others.

    Args:
        spaces: what they are chosen from.
        trials: all so far, in order.
        seed: of the search.
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
    """Return a trial as Optuna has it: one that could not be trained is the worst; None if it is outside the space."""
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
    """Return what the best value of a trial must reach by each evaluation but the last, or it is ended.

    That is the median of the complete trials at the same evaluation, as in Optuna's ``MedianPruner``.
    """
    complete = [trial.evaluations for trial in trials if trial.state == "complete"]
    if len(complete) < _COMPLETE:
        return ()
    most = max(map(len, complete))
    medians = (statistics.median(each[place] for each in complete if place < len(each)) for place in range(most))
    return tuple(median if place >= _SPARED * most else None for place, median in enumerate(medians))
