"""Tables about a pose network; see :mod:`podline.reporting.tables`."""

from __future__ import annotations

from collections.abc import Sequence

from podline import figures
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import StepsLine
from podline.documents.noun import Noun
from podline.documents.pose_evaluation import PoseEvaluation
from podline.documents.ranked_images import Ranked
from podline.ledger.differences import NONE
from podline.measures import shown
from podline.reporting.quoted import Quotes
from podline.reporting.tables import Table, table_of


def metrics(evaluation: PoseEvaluation, noun: Noun) -> Table:
    """Every metric with its interval, of the trained network, the untrained one, and on images that were trained on."""
    sides = {
        f"trained, {evaluation.split} split": "trained",
        f"untrained, {evaluation.split} split": "untrained",
        "trained, images it has seen": "seen",
    }

    fig = Quotes(evaluation=evaluation)

    def metric(side: str, name: str) -> str:
        return fig.metric(f"evaluation.{side}.metrics.{name}") if name in getattr(evaluation, side).metrics else NONE

    known = {name for side in sides.values() for name in getattr(evaluation, side).metrics}
    rows = [
        {"": noun.said(measure.label)} | {title: metric(side, measure.name) for title, side in sides.items()}
        for measure in shown(known)
    ]
    rows += [
        {"": noun.said(what)} | {title: fig(f"evaluation.{side}.{what}") for title, side in sides.items()}
        for what in ("images", "people", "results")
    ]
    guessing = dict.fromkeys(sides, NONE) | {
        next(iter(sides)): fig.metric("evaluation.guessing", "ap"),
    }
    rows.insert(1, {"": f"AP of one and the same {noun.one} in every image"} | guessing)
    return table_of(rows)


def sizes(evaluation: PoseEvaluation, noun: Noun) -> Table:
    """Return AP and AR of people by size."""
    entries, fig = evaluation.sizes, Quotes(evaluation=evaluation)
    rows = [
        {
            "root of the area": f"{size.low:g}–{size.high:g} px"
            if size is not entries[-1]
            else f"from {size.low:g} px",
            noun.many: fig(f"evaluation.sizes.{place}.people"),
            "found at OKS 0.5": fig(f"evaluation.sizes.{place}.found"),
            "AP": fig(f"evaluation.sizes.{place}.ap", _share) if size.ap >= 0 else NONE,
            "AR": fig(f"evaluation.sizes.{place}.ar", _share) if size.ar >= 0 else NONE,
        }
        for place, size in enumerate(entries)
    ]
    return table_of(rows)


def joints(evaluation: PoseEvaluation, noun: Noun) -> Table:
    """Return each joint: how often it is labelled, in people that were found, and how near it is then."""
    fig = Quotes(evaluation=evaluation)
    rows = [
        {
            "joint": joint.joint.replace("_", " "),
            "labelled": fig(f"{place}.labelled"),
            f"in {noun.many} found": fig(f"{place}.in_found"),
            "close": fig(f"{place}.close"),
            "of those found": figures.percent(joint.close / joint.in_found) if joint.in_found else NONE,
            "mean OKS": fig(f"{place}.similarity", _share) if joint.in_found else NONE,
            "median distance": NONE if joint.distance is None else fig(f"{place}.distance", _share),
        }
        for number, joint in enumerate(evaluation.joints)
        for place in (f"evaluation.joints.{number}",)
    ]
    return table_of(rows)


def counted(manifest: Manifest) -> Table:
    """Rules of the conversion that applied to records that are written, and how often; empty when none did."""
    rows = [(manifest.skeleton.noun.said(rule), figures.count(times)) for rule, times in manifest.counted.items()]
    return Table(["what the conversion met", "times"], rows)


def last_measures(steps: Sequence[StepsLine]) -> Table:
    """Each stage's measures in the last stretch of training, a column for each."""
    rows: dict[str, dict[str, str]] = {}
    for name, value in (steps[-1].measures if steps else {}).items():
        stage, _, measure = name.partition("/")
        rows.setdefault(stage, {"stage": stage.replace("_", " ")})[measure.replace("_", " ")] = f"{value:.4g}"
    return table_of(rows.values())


def examples(ranked: Ranked, noun: Noun) -> Table:
    """The images that are drawn, in words."""
    rows = [
        {
            "which": kind,
            "image": str(image.image_id),
            noun.many: figures.count(image.people),
            "found": figures.count(image.found),
            "false alarms": figures.count(image.false_alarms),
            "quality": f"{image.quality:.3f}",
        }
        for kind in Ranked.model_fields
        for image in getattr(ranked, kind)
    ]
    return table_of(rows, words=2)


def _share(value: float) -> str:
    return f"{value:.3f}"
