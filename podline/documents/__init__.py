"""The JSON documents in a store, each with its model and its one reader."""
