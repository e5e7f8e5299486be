"""The store: a folder or a bucket, with its cache, locks and checksums."""
