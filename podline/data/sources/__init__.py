"""Raw archives, parsed: CIFAR-10, CIFAR-100, MNIST, and the drawn sample."""
