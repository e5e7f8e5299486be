"""Measured in a child process: training steps under one strategy."""

from __future__ import annotations

import time

from benchmarks.parts import Parts
from podline.recipes import registry
from podline.recipes.settings import Duration, ScheduleSettings

_LAST_WORDS_SECONDS = 5.0

# So low that what the order of a sum rounds away stays as small as it is: at the recipe's own rate an untrained network
# makes ten times more of it with each step, under any strategy.
_LEARNING_RATE = 1e-3


def stretches(
    root: str, folder: str, strategy: str, batch_size: int, steps: int, repetitions: int
) -> dict[str, list[float]]:
    """Seconds for stretches of the cifar10 recipe's steps, and the losses of the first one, which is not timed.

    Args:
        root: the store.
        folder: the data set's folder in it.
        strategy: what the steps run under; for workers every one of them makes this call.
        batch_size: examples in a step, over all replicas.
        steps: in a stretch.
        repetitions: stretches that are timed.
    """
    changes = {
        "batch_size": batch_size,
        "duration": Duration(steps=(repetitions + 1) * steps),
        "schedule": ScheduleSettings(kind="constant", learning_rate=_LEARNING_RATE),
    }
    recipe = registry.get("cifar10").model_copy(update=changes)
    each = Parts(recipe, root, folder, strategy).steps()
    losses = each.advance(steps).series["loss"]
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        each.advance(steps)
        seconds.append(time.perf_counter() - started)
    if strategy == "workers":
        time.sleep(_LAST_WORDS_SECONDS)  # another one may still receive this one's part of the last sum
    return {"seconds": seconds, "losses": [float(loss) for loss in losses]}
