"""The JSON documents in a store: for each kind of document, one pydantic model and one function that reads it."""
