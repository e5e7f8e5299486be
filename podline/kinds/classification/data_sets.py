"""The data sets with one class per image."""

from podline.recipes.datasets import DataSet

_CIFAR = "podline.data.sources.opening:open_layout"
CIFAR10 = DataSet("cifar10", _CIFAR, image_shape=(32, 32, 3), classes=10, published="podline.recipes.official:CIFAR10")
CIFAR100 = DataSet(
    "cifar100", _CIFAR, image_shape=(32, 32, 3), classes=100, published="podline.recipes.official:CIFAR100"
)
MNIST = DataSet("mnist", _CIFAR, image_shape=(28, 28, 1), classes=10, published="podline.recipes.official:MNIST")
SAMPLE = DataSet(
    "sample",
    _CIFAR,
    image_shape=(32, 32, 3),
    classes=10,
    draw="podline.data.sources.sample:write_sample",
    drawn="cifar-10-batches-bin",
)
IMAGES = DataSet(
    "images",
    "podline.data.images.opening:open_images",
    settings="podline.data.images.settings:ClassesSettings",
    version=1,
    several=True,
)
