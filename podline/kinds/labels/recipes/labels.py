"""A small residual network that names any number of labels on images of one's own.

podline run labels --source DIR --root ROOT

Expect nothing in particular: it depends on the images. docs/how-to/labels.md tells what DIR may be.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.images import RECIPE as IMAGES
from podline.kinds.labels.settings import LabelsSettings

# Thresholds are chosen on the images that are held out.
RECIPE = IMAGES.changed(name="labels", dataset="labels", task=LabelsSettings(), validation_share=0.1)
"""Flips images: not for letters and digits."""
