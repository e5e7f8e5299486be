"""The store: a folder or a bucket, its cache, its locks, and the checksums of what it holds."""
