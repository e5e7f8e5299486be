"""Runs flows on a Prefect server: server, pages, worker, deployments and automations. Flows are in flows."""
