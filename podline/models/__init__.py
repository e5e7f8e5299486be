"""Networks, and their parameter and operation counts."""

from podline import use_tensorflow

use_tensorflow()
