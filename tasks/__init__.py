"""The stages as Prefect tasks; how a flow run begins, what it shows and how it ends; the TPU's own node."""
