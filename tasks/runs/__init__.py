"""A flow run's state on the Prefect server: its log, cards, slots and stops."""
