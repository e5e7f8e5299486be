"""Small COCO documents with everything that real ones have: crowds, unlabelled people, images without people."""

from __future__ import annotations

from typing import Any

import numpy as np

CATEGORIES = [{"id": 1, "name": "person", "supercategory": "person"}]


def annotation(number: int, image: int, keypoints: np.ndarray, **changes: Any) -> dict[str, Any]:
    """A person's annotation from (17, 3) keypoints; the box encloses the labelled ones."""
    labelled = keypoints[keypoints[:, 2] > 0, :2]
    low, size = (labelled.min(axis=0), np.ptp(labelled, axis=0)) if len(labelled) else (np.array([5, 5]), np.ones(2))
    return {
        "id": number,
        "image_id": image,
        "category_id": 1,
        "iscrowd": 0,
        "num_keypoints": len(labelled),
        "keypoints": keypoints.ravel().tolist(),
        "bbox": [*low.tolist(), *size.tolist()],
        "area": float(0.6 * size.prod()),
        **changes,
    }


def random_truth(seed: int, images: int = 8) -> dict[str, Any]:
    """Images with 0 to 4 people; some crowds, some people without a labelled joint."""
    rng = np.random.default_rng(seed)
    annotations = []
    for image in range(images):
        for _ in range(rng.integers(0, 5)):
            size = rng.uniform(15, 250)
            keypoints = np.zeros((17, 3), int)
            keypoints[:, :2] = rng.uniform(0, 300, 2) + rng.uniform(0, size, (17, 2))
            keypoints[:, 2] = rng.choice([0, 1, 2], 17)
            kind = rng.choice(["person", "person", "person", "crowd", "unlabelled"])
            if kind == "unlabelled":
                keypoints[:] = 0
            keypoints[keypoints[:, 2] == 0] = 0
            number = len(annotations) + 1
            annotations.append(annotation(number, image + 100, keypoints, iscrowd=int(kind == "crowd")))
    return {
        "images": [{"id": image + 100, "width": 640, "height": 640} for image in range(images)],
        "annotations": annotations,
        "categories": CATEGORIES,
    }


def random_results(truth: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """People near those in truth, people elsewhere, equal scores, and an image with more results than count."""
    rng = np.random.default_rng(seed)
    results = []
    for person in truth["annotations"]:
        for _ in range(rng.integers(0, 3)):
            noise = rng.normal(0, rng.choice([0, 2, 8]), 51)
            noise[2::3] = 0
            results.append((person["image_id"], np.array(person["keypoints"]) + noise))
    results += [(truth["images"][0]["id"], rng.uniform(0, 600, 51)) for _ in range(25)]
    return [
        {
            "image_id": image,
            "category_id": 1,
            "keypoints": keypoints.tolist(),
            "score": float(rng.integers(0, 20)) / 20,
        }
        for image, keypoints in results
    ]
