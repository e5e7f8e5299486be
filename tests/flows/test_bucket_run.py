"""``podline run cifar10`` with everything in a bucket gives, to the byte, what it gives in a folder.

The run in the bucket has a service account's file, as on Google Cloud; no word of it is found anywhere afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fault_proxy
import pytest
from gcs_emulator import upload
from service_account import account_at, secrets_of

from podline.data.sources.sample import write_sample
from podline.store.contract import Store
from podline.store.opening import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
# What says when, where and how long, and so is another each time.
_OF_THE_MOMENT = ("-finished-", "/stages/", ".jsonl", "tensorboard/", "/checkpoints/", "spec.json", "report")
_OF_THE_MOMENT += ("model.keras", "index.html")


def run(tmp_path: Path, root: str, source: str, *options: str, **environment: str) -> dict[str, Any]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-m", "podline.cli", "run", "cifar10", "--root", root, "--source", source, "--json"]
    done = subprocess.run(
        [*command, "--steps", "250", "--batch-size", "32", "--set", "model.width=0.5", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=ours | {"PODLINE_SERVER_TIMEOUT": "600"} | environment,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "printed").open("a") as printed:
        printed.write(done.stdout + done.stderr)
    return json.loads(done.stdout)


def bytes_in(store: Store) -> dict[str, str]:
    names = [name for name in store.list() if not any(part in name for part in _OF_THE_MOMENT)]
    return {name: store.sha256(name) for name in names if not name.startswith(("sources/", "conversions/"))}


def test_a_bucket_gives_what_a_folder_gives_also_through_a_bad_network(tmp_path: Path, gcs: str, gcs_root: str) -> None:
    # Pictures that can be learned in seconds, in CIFAR-10's layout; without the names of their classes, they are it.
    raw = write_sample(tmp_path / "raw", train=1000, test=200)
    next(raw.rglob("batches.meta.txt")).unlink()
    source = upload(raw, f"{gcs_root}raw data")

    root = f"{gcs_root}root/"
    with fault_proxy.fault_proxy(gcs) as proxy:
        proxy.share, proxy.token = 0.2, "ya29.the-secret-token"
        account = account_at(f"{proxy.url}/token")
        file = tmp_path / "key.json"
        file.write_text(json.dumps(account))
        # Not as an emulator, of which the library thinks that it needs no credentials.
        there = run(
            tmp_path,
            root,
            source,
            STORAGE_EMULATOR_HOST="",
            API_ENDPOINT_OVERRIDE=proxy.url,
            GOOGLE_APPLICATION_CREDENTIALS=str(file),
        )
        assert proxy.happened.total() > 10
        assert proxy.authorized == len(proxy.queries)
    assert there["report"].startswith(f"{root.rstrip('/')}/runs/")

    run(tmp_path, "root", str(raw))
    expected, store = bytes_in(open_store(tmp_path / "root")), open_store(root)
    for part in ("weights.npz", "tfrecord", "evaluation.json"):
        assert any(part in name for name in expected), part
    found = bytes_in(store)
    assert {name: found.get(name) for name in expected} == expected

    file.unlink()
    told = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    told |= {name: store.read_bytes(name) for name in store.list()}
    assert any("prefect.db" in name for name in told)
    secrets = [*secrets_of(account), proxy.token]
    assert [(name, secret) for name, text in told.items() for secret in secrets if secret.encode() in text] == []
