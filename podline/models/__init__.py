"""Builds networks, loads weights from files, counts parameters and operations. The training loop is in training."""

from podline import use_tensorflow
from podline.settings.tensorflow_noise import quiet_tensorflow

use_tensorflow()
quiet_tensorflow()
