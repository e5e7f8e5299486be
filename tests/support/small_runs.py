"""A finished run of a few bytes, written in a millisecond."""

from __future__ import annotations

from small_dataset import FINGERPRINT

from podline.documents.completion import Completion, artifact_of
from podline.store.contract import Store


def publish_run(store: Store, name: str, fingerprint: str = FINGERPRINT, further: str | None = None) -> None:
    recipe = {"dataset": "sample", "further": further}
    store.publish_json(f"runs/{name}/spec.json", {"recipe": recipe, "fingerprint": fingerprint})
    store.publish_bytes(f"runs/{name}/model/weights.npz", name.encode())
    artifacts = tuple(artifact_of(store, f"runs/{name}/{file}") for file in ("spec.json", "model/weights.npz"))
    done = Completion(stage="train", spec_digest="0", result={}, artifacts=artifacts)
    store.publish_json(f"runs/{name}/stages/train.json", done.model_dump(mode="json"))
