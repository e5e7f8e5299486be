"""Runs flows on a Prefect server: the server, its pages, a worker, deployments and automations."""
