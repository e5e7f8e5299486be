"""Tables about a pose network; see :mod:`podline.reporting.tables`."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from podline.data.manifest import Manifest
from podline.evaluation.oks import JointFigures, SizeFigures
from podline.evaluation.pose_document import PoseEvaluation
from podline.evaluation.pose_images import Ranked
from podline.reporting import figures
from podline.reporting.tables import Table
from podline.training.metrics_log import StepsLine

_NONE = "–"


def metrics(evaluation: PoseEvaluation) -> Table:
    """Every metric with its interval, of the trained network, the untrained one, and on images that were trained on."""
    sides = {
        f"trained, {evaluation.split} split": evaluation.trained,
        f"untrained, {evaluation.split} split": evaluation.untrained,
        "trained, images it has seen": evaluation.seen,
    }
    names = [name for name in figures.METRIC_NAMES if any(name in scored.metrics for scored in sides.values())]
    rows = [
        {"": figures.METRIC_NAMES[name]}
        | {
            side: figures.metric_text(name, scored.metrics[name]) if name in scored.metrics else _NONE
            for side, scored in sides.items()
        }
        for name in names
    ]
    rows += [
        {"": what} | {side: figures.count(getattr(scored, what)) for side, scored in sides.items()}
        for what in ("images", "people", "results")
    ]
    guessing = dict.fromkeys(sides, _NONE) | {
        next(iter(sides)): figures.metric_text("ap", evaluation.guessing),
    }
    rows.insert(1, {"": "AP of one and the same person in every image"} | guessing)
    return Table(pd.DataFrame(rows))


def sizes(entries: Sequence[SizeFigures]) -> Table:
    """AP and AR of people by size."""
    rows = [
        {
            "root of the area": f"{size.low:g}–{size.high:g} px"
            if size is not entries[-1]
            else f"from {size.low:g} px",
            "people": figures.count(size.people),
            "found at OKS 0.5": figures.count(size.found),
            "AP": _share(size.ap),
            "AR": _share(size.ar),
        }
        for size in entries
    ]
    return Table(pd.DataFrame(rows))


def joints(entries: Sequence[JointFigures]) -> Table:
    """Each joint: how often it is labelled, in people that were found, and how near it is then."""
    rows = [
        {
            "joint": joint.joint.replace("_", " "),
            "labelled": figures.count(joint.labelled),
            "in people found": figures.count(joint.in_found),
            "close": figures.count(joint.close),
            "of those found": figures.percent(joint.close / joint.in_found) if joint.in_found else _NONE,
            "mean OKS": f"{joint.similarity:.3f}" if joint.in_found else _NONE,
            "median distance": _NONE if joint.distance is None else f"{joint.distance:.3f}",
        }
        for joint in entries
    ]
    return Table(pd.DataFrame(rows))


def counted(manifest: Manifest) -> Table:
    """Rules of the conversion that applied to records that are written, and how often; empty when none did."""
    rows = [(rule, figures.count(times)) for rule, times in manifest.counted.items()]
    return Table(pd.DataFrame(rows, columns=["what the conversion met", "times"]))


def last_measures(steps: Sequence[StepsLine]) -> Table:
    """Each stage's measures in the last stretch of training, a column for each."""
    rows: dict[str, dict[str, str]] = {}
    for name, value in (steps[-1].measures if steps else {}).items():
        stage, _, measure = name.partition("/")
        rows.setdefault(stage, {"stage": stage.replace("_", " ")})[measure.replace("_", " ")] = f"{value:.4g}"
    return Table(pd.DataFrame(list(rows.values())).fillna(_NONE))


def examples(ranked: Ranked) -> Table:
    """The images that are drawn, in words."""
    rows = [
        {
            "which": kind,
            "image": str(image.image_id),
            "people": figures.count(image.people),
            "found": figures.count(image.found),
            "false alarms": figures.count(image.false_alarms),
            "quality": f"{image.quality:.3f}",
        }
        for kind in Ranked.model_fields
        for image in getattr(ranked, kind)
    ]
    return Table(pd.DataFrame(rows), words=2)


def _share(value: float) -> str:
    return _NONE if value < 0 else f"{value:.3f}"
