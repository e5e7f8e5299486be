"""Cloud TPUs: their health, their users, the gate, the watch and the repairs. Stages and training use a TPU."""
