"""``podline score``: COCO keypoint results, anybody's, held against the annotations."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from podline.commands import pages
from podline.commands.options import json_option, say, say_json
from podline.figures import count
from podline.measures import measure_named
from podline.plurals import plural


@click.command("score", cls=pages.Command)
@click.argument("results", type=click.Path(path_type=Path))
@click.option(
    "--truth",
    type=click.Path(path_type=Path),
    required=True,
    help="COCO annotations, as person_keypoints_val2017.json.",
)
@json_option
def score(results: Path, truth: Path, as_json: bool) -> None:
    """COCO keypoint results, anybody's, judged by pycocotools: AP and AR, by size and by joint.

    RESULTS is a COCO results file: a list of objects with image_id, category_id, keypoints and score. The ten figures
    are pycocotools' own to the last digit (--json has them all); -1 where there is nobody of that size. Results may be
    empty, truth may hold nobody or crowds only.

      podline score people.json --truth annotations/person_keypoints_val2017.json
      podline score podline-root/runs/RUN/people-test.json --truth podline-root/datasets/coco/DIGITS/truth-test.json

    Nothing is written.
    """
    # By name: pycocotools brings matplotlib, which the other commands do without.
    files = importlib.import_module("podline.evaluation.coco_results")
    oks = importlib.import_module("podline.evaluation.oks")
    wanted = files.read_truth(truth)
    joints, _ = files.judged_joints(wanted)
    found = oks.evaluate_results(wanted, files.read_results(results, len(joints)))
    if as_json:
        say_json(found.model_dump(mode="json"))
    else:
        say(_page(found, files.judged_noun(wanted)))


def _page(found: Any, noun: Any) -> list[str]:
    people = f"{plural(found.results, 'result')} for {plural(found.people, noun.one, noun.many)}"
    people += f" in {plural(found.images, 'image')}"
    lines = [people, ""]
    named = {noun.said(measure_named(name).label): value for name, value in found.figures.model_dump().items()}
    first, second = max(20, *map(len, named)), max(8, len(noun.many))
    lines += [f"{name:{first}} {_figure(value)}" for name, value in named.items()]
    if found.score_threshold is not None:
        lines.append(f"{'best F1 from score':{first}} {found.score_threshold:.3f}")
    lines += ["", f"{'root of area':>12} {noun.many:>{second}} {'found':>8} {'AP':>7} {'AR':>7}"]
    for size in found.sizes:
        name = f"{size.low:g}–{size.high:g}" if size is not found.sizes[-1] else f"from {size.low:g}"
        figures = f"{_figure(size.ap):>7} {_figure(size.ar):>7}"
        lines.append(f"{name:>12} {count(size.people):>{second}} {count(size.found):>8} {figures}")
    lines += ["", f"{'joint':16} {'labelled':>9} {'in found':>9} {'close':>8} {'OKS':>7} {'distance':>9}"]
    for joint in found.joints:
        distance = "–" if joint.distance is None else f"{joint.distance:.3f}"
        lines.append(
            f"{joint.joint.replace('_', ' '):16} {count(joint.labelled):>9} {count(joint.in_found):>9} "
            f"{count(joint.close):>8} {joint.similarity:>7.3f} {distance:>9}"
        )
    return [
        *lines,
        "",
        "found: by a result with an OKS of at least 0.5; close: likewise, of the joint alone;",
        f"distance: the median, as a share of the root of the {noun.one}'s area.",
    ]


def _figure(value: float) -> str:
    return "–" if value < 0 else f"{value:.3f}"
