"""What a failure of the first step means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from podline.errors import SettingsError
from podline.stages.specs import TrainSpec


@contextlib.contextmanager
def permanent(spec: TrainSpec) -> Iterator[None]:
    """A failure of the first step will be one of every step: it is permanent, whatever TensorFlow calls it.

    What says that a device is away (``UnavailableError`` and its like) stays what it is.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        raise SettingsError(
            f"a batch of {spec.recipe.batch_size} does not fit into memory ({_first_line(error)}); choose a smaller "
            "batch_size, or a narrower model"
        ) from error
    except (tf.errors.InvalidArgumentError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"the first step of {spec.run} fails: {type(error).__name__}: {_first_line(error)}"
        ) from error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
