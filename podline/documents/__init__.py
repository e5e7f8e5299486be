"""The JSON documents in a store, each with one model and one reader. Who makes them, and when, is above."""
