"""The training loop: steps, schedules, optimizers, checkpoints, decisions. Networks are in models."""
