"""Builds networks, loads their weights from files, and counts their parameters and operations."""

from podline import use_tensorflow
from podline.stages.supervision.tensorflow_noise import quiet_tensorflow

use_tensorflow()
quiet_tensorflow()
