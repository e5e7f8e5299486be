"""The training loop, checkpoints, schedules and optimizers."""
