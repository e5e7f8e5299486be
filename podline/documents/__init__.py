"""The JSON documents in a store, each with one model and one reader."""
