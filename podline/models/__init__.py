"""Networks, and their parameter and operation counts."""

from podline import use_tensorflow
from podline.supervision.tensorflow_noise import quiet_tensorflow

use_tensorflow()
quiet_tensorflow()
