"""Measured in child processes: objects of a bucket brought to this machine, by the store and by a bare download.

Each process starts with an empty cache, named by its environment.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from google.cloud import storage

from podline.documents.manifest import read_manifest
from podline.progress import silent
from podline.settings import load
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT
from podline.store.buckets import split_uri
from podline.store.opening import open_store

_BLOCK_BYTES = 1 << 20


def make_data_set(source: str, root: str, shard_bytes: int) -> str:
    """Convert raw files into a store; return the data set's folder in it."""
    spec = ConvertSpec(root=root, dataset="cifar10", source=source, shard_bytes=shard_bytes)
    return CONVERT.run(spec, silent()).folder


def shards_of(root: str, folder: str) -> list[str]:
    """Return the names of all shards."""
    manifest = read_manifest(open_store(root), folder)
    return [f"{folder}/{shard.file}" for shard in manifest.shards]


def stage(root: str, folder: str) -> float:
    """Seconds until all shards are in the cache, checked."""
    store, names = open_store(root), shards_of(root, folder)
    started = time.perf_counter()
    store.locals(names)
    return time.perf_counter() - started


def download(root: str, folder: str) -> float:
    """Seconds of as many threads as the store has that download one shard after the other, as the library does it."""
    bucket, prefix = split_uri(root)
    names = shards_of(root, folder)
    settings = load().store
    client = storage.Client(project=None)
    place = client.bucket(bucket, user_project=settings.user_project)
    target = Path(settings.cache) / "downloads"
    target.mkdir(parents=True)

    def fetch(number: int) -> None:
        name = f"{prefix}/{names[number]}" if prefix else names[number]
        place.blob(name).download_to_filename(str(target / str(number)))

    started = time.perf_counter()
    with ThreadPoolExecutor(settings.parallel) as threads:
        list(threads.map(fetch, range(len(names))))
    return time.perf_counter() - started


def there_and_back(root: str, size: int, work: str) -> float:
    """Return the peak memory, in MB, of publishing an object of this many bytes and bringing it back."""
    store, path = open_store(root), Path(work) / "object"
    random, digest = np.random.default_rng(0), hashlib.sha256()
    with path.open("wb") as stream:
        for start in range(0, size, _BLOCK_BYTES):
            block = random.bytes(min(_BLOCK_BYTES, size - start))
            stream.write(block)
            digest.update(block)
    name = f"object-{size}"
    store.publish_file(path, name)
    path.unlink()
    if store.local(name).stat().st_size != size or store.sha256(name) != digest.hexdigest():
        raise AssertionError(f"{name} came back as something else")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
