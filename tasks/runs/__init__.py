"""What a flow run keeps and shows on the Prefect server: its log, cards, slots, stops."""
