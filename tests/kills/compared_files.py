"""Which files of a store must be the same after kills as after an undisturbed run, and how they are compared.

Times, seconds and what follows from them cannot be the same; a file that no row of the table knows is a fault.
"""

from __future__ import annotations

import fnmatch
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from podline.documents.ledger_entry import Entry
from podline.documents.metrics_log import EventLine
from podline.store import digests
from podline.store.contract import Store

# Of JSON documents: what a clock says, where the store is, what a start found done already, and digests of all this.
_TIMES = {"seconds", "spans", "time", "examples_per_second", "milliseconds", "waiting", "waiting_for_input"}
_TIMES |= {"load", "clock", "root", "document_sha256", "modified", "published"}
_STARTS = {"resumed_from", "shards_written", "shards_reused", "reused", "traces"}
# Artifacts of completion records whose own bytes hold such: their digests differ, and `store verify` checks them.
_DIFFER = re.compile(
    r".*/(spec\.json|metrics\.jsonl|events\.jsonl|checkpoints/.*\.json|tensorboard/.*|model\.keras|report\.(html|md))"
)


def _document(content: bytes) -> Any:
    return _without(json.loads(content), _TIMES | _STARTS)


def _completion(content: bytes) -> Any:
    document = _document(content)
    for artifact in [*document["artifacts"], *(document["beside"] or ())]:
        if _DIFFER.fullmatch(artifact["name"]):
            del artifact["sha256"], artifact["bytes"]
    return document


def _checkpoint(content: bytes) -> Any:
    # The mark of metrics.jsonl is a digest of times.
    return _without(_document(content), {"metrics"})


def _lines(content: bytes) -> Any:
    return [_without(json.loads(line), _TIMES) for line in content.splitlines()]


def _archive(content: bytes) -> Any:
    """What is in a zip file; Keras writes the date into metadata.json, and into the head of each member."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {each.filename: each.CRC for each in file.infolist() if each.filename != "metadata.json"}


def _events(content: bytes) -> Any:
    """Tells of every start, so only the end is the same."""
    *_, last = (EventLine.model_validate_json(line) for line in content.splitlines())
    return last.event, last.step


def _records(content: bytes) -> Any:
    """How many whole TFRecords; TensorBoard's hold times, and are made of metrics.jsonl."""
    count = start = 0
    while start < len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        start += length + 16
        count += 1
    return count, start - len(content)


def _there(content: bytes) -> Any:
    return len(content) > 0


HOW: tuple[tuple[str, Callable[[bytes], Any]], ...] = (
    ("datasets/*/stages/*.json", _completion),
    ("datasets/*", digests.of_bytes),  # shards, manifest, truths, what TFDS reads
    ("versions/*", digests.of_bytes),
    ("sources/*", digests.of_bytes),  # drawn samples
    ("targets/*", _document),
    ("runs/*/spec.json", _document),
    ("runs/*/model/model.keras", _archive),
    ("runs/*/model/*", digests.of_bytes),
    ("runs/*/checkpoints/*.npz", digests.of_bytes),
    ("runs/*/checkpoints/*.json", _checkpoint),
    ("runs/*/metrics.jsonl", _lines),
    ("runs/*/events.jsonl", _events),
    ("runs/*/tensorboard/*", _records),
    ("runs/*/evaluation.json", digests.of_bytes),
    ("runs/*/guesses.npz", digests.of_bytes),
    ("runs/*/stages/*.json", _completion),
    ("runs/*/origin.json", _there),  # code, settings and environment of the start that ended the training
    ("runs/*/report.*", _there),  # pages show times; `store verify` checks them
    ("index.html", _there),
)


def comparable(store: Store) -> dict[str, Any]:
    """What must be the same: name → what is compared of it. Of the ledger, :func:`ended_runs` tells.

    Raises:
        LookupError: a file is there that no row of the table knows.
    """
    found = {}
    for name in store.list():
        # The name of a conversion's record depends on the folder of its source.
        if not name.startswith(("conversions/", "ledger/", "jobs/", "logs/")):
            how = next((how for pattern, how in HOW if fnmatch.fnmatch(name, pattern)), None)
            if how is None:
                raise LookupError(f"{store.where(name)}: how is it compared?")
            found[name] = how(store.read_bytes(name))
    return found


def ended_runs(store: Store) -> list[str]:
    """How the runs of the ledger's entries ended, sorted; those of attempts that were killed outright left out."""
    entries = [Entry.model_validate(store.read_json(name)) for name in store.list("ledger")]
    return sorted(entry.state for entry in entries if "own process was killed" not in entry.cause)


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """The names that are compared and are not the same, or are there on one side only."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


def _without(document: Any, keys: set[str]) -> Any:
    if isinstance(document, dict):
        return {key: _without(value, keys) for key, value in document.items() if key not in keys}
    return [_without(value, keys) for value in document] if isinstance(document, list) else document
