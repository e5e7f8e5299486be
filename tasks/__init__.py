"""One Prefect task per stage: retries, delays, cache keys, artifacts."""
