"""Cloud TPUs: health, users, the gate and the repair. What runs on one is in stages and training."""
