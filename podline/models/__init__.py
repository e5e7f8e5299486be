"""Networks: building, weights from files, counts. How they are trained is in training."""

from podline import use_tensorflow
from podline.stages.supervision.tensorflow_noise import quiet_tensorflow

use_tensorflow()
quiet_tensorflow()
