"""Puts flows on a Prefect server: the server itself, its pages, a worker, deployments and automations."""
