"""The JSON documents in a store, each with a pydantic model and its reader. Listing and deletion are in ledger."""
