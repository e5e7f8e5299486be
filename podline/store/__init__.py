"""The store: a folder or a bucket, with its cache, locks, leases and checksums. Knows names and bytes, no documents."""
