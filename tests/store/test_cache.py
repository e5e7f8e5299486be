"""The cache of copies: many at once, a limit that holds."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

from podline.store.cache import Cache

SIZE = 1_000


def fetched(cache: Cache, key: str) -> Path:
    def fetch(copy: Path) -> None:
        with copy.open("r+b") as stream:  # it keeps its size all the time: others count it
            stream.write(key.encode().ljust(SIZE))

    return cache.get(key, SIZE, lambda _: True, fetch)


def test_copies_come_and_are_named_while_others_make_room(tmp_path: Path):
    cache = Cache(tmp_path, limit=400 * SIZE)
    keys = [f"object {number}" for number in range(400)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        copies = list(pool.map(lambda key: fetched(cache, key), keys))
    assert [copy.read_bytes().strip().decode() for copy in copies] == keys


def test_caches_of_two_processes_share_the_limit(tmp_path: Path):
    limit = 20 * SIZE
    most = []
    for start in range(0, 200, 10):
        ours, theirs = Cache(tmp_path, limit), Cache(tmp_path, limit)
        keys = [f"object {number}" for number in range(start, start + 10)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(fetched, [ours, theirs] * 5, keys))
        most.append(sum(copy.stat().st_size for copy in (tmp_path / "objects").iterdir()))
        ours.release()
        theirs.release()
    assert max(most) == limit
