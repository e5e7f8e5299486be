"""Parsers of raw archives: CIFAR-10, CIFAR-100, MNIST, COCO's person keypoints and the drawn samples."""
