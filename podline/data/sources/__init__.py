"""Opens sources: CIFAR-10, CIFAR-100, MNIST, the drawn sample, files for a user's own code; here or in a bucket."""
