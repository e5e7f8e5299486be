"""The page about a pose network, and its Markdown twin; see :mod:`podline.reporting.page`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podline import figures
from podline.documents.noun import Noun
from podline.documents.pose_evaluation import PoseEvaluation
from podline.documents.skeleton import Skeleton
from podline.drawing.pose_maps import heatmap_panels, heatmap_picture, paf_panels, paf_picture
from podline.drawing.skeletons import CENTER, LEFT, RIGHT, with_skeletons
from podline.reporting import pictures, pose_charts, pose_tables, verdict
from podline.reporting.judged_pictures import JudgedPicture, MapsOfImage
from podline.reporting.page import run_charts, run_content
from podline.reporting.pose_facts import PoseFacts
from podline.reporting.templates import MARKDOWN_TEMPLATES, TEMPLATES, unbroken

# Pictures are shown at about this size; twice as many pixels are sharp on a screen of high resolution as well.
_LONGER_SIDE = 560
_KINDS = {"best": "The best", "median": "In the middle", "worst": "The worst"}


def html(facts: PoseFacts) -> str:
    """The page: one self-contained HTML document."""
    template = TEMPLATES.get_template("pose_page.html")
    page = template.render(
        _content(facts),
        charts=run_charts(facts) | verdict.charts(facts) | pose_charts.charts(facts),
        pictures=_pictures(facts.pictures, facts.manifest.skeleton),
        seen=_pictures(facts.seen, facts.manifest.skeleton),
        maps=_maps(facts.maps, facts.manifest.skeleton) if facts.maps else None,
        stage_charts=pose_charts.MEASURES,
        colours={name: _css(colour) for name, colour in (("left", LEFT), ("right", RIGHT), ("center", CENTER))},
    )
    return unbroken(page)


def markdown(facts: PoseFacts) -> str:
    """The same in Markdown, with the same figures; without charts and pictures."""
    return MARKDOWN_TEMPLATES.get_template("pose_page.md").render(_content(facts))


def _content(facts: PoseFacts) -> dict[str, Any]:
    """What both templates show."""
    evaluation, manifest = facts.evaluation, facts.manifest
    noun = manifest.skeleton.noun
    about = f"for {noun.keypoints} on the {evaluation.split} split of {evaluation.dataset}"
    return (
        run_content(facts)
        | verdict.content(facts, about, evaluation.verdict(noun), _tiles(facts))
        | {
            "noun": noun,
            "threshold": _threshold(evaluation, noun),
            "metrics": pose_tables.metrics(evaluation, noun),
            "joints": pose_tables.joints(evaluation, noun),
            "sizes": pose_tables.sizes(evaluation, noun),
            "counted": pose_tables.counted(manifest),
            "last_measures": pose_tables.last_measures(facts.steps),
            "examples": pose_tables.examples(evaluation.pictures, noun),
        }
    )


def _tiles(facts: PoseFacts) -> list[verdict.Tile]:
    """What is looked at first, after the AP."""
    known = facts.evaluation.trained.metrics
    return [
        *(verdict.metric_tile(facts, name) for name in ("ap50", "ap75", "ar") if name in known),
        verdict.Tile("images", facts.fig("evaluation.trained.images")),
        verdict.Tile(facts.manifest.skeleton.noun.many, facts.fig("evaluation.trained.people")),
    ]


def _threshold(evaluation: PoseEvaluation, noun: Noun) -> str:
    """What became of the score threshold, in words."""
    chosen = evaluation.threshold
    if chosen is None:
        return f"No score threshold could be chosen: {noun.nobody} was found on images that the network was trained on."
    judged = chosen.judged
    return (
        f"{noun.said('People')} are drawn and counted from a score of {judged.score:.3f} on. This threshold has the "
        f"best F1 measure on {figures.count(chosen.images)} images of the {chosen.chosen_on} split; what is judged had "
        f"no part in choosing it. With it, on the {evaluation.split} split {figures.count(judged.right)} of "
        f"{figures.count(judged.people)} {noun.many} are found at OKS 0.5 (recall {figures.percent(judged.recall)}), "
        f"and {figures.count(judged.kept - judged.right)} of {figures.count(judged.kept)} results are {noun.nobody} "
        f"(precision {figures.percent(judged.precision)}). AP itself needs no threshold."
    )


def _pictures(judged: Mapping[str, list[JudgedPicture]], skeleton: Skeleton) -> list[dict[str, Any]]:
    """Groups of pictures, each image twice: as found and as it is."""
    return [
        {"kind": kind, "name": name, "pairs": [_pair(picture, skeleton) for picture in judged[kind]]}
        for kind, name in _KINDS.items()
        if judged[kind]
    ]


def _pair(picture: JudgedPicture, skeleton: Skeleton) -> dict[str, str]:
    scale, of = _LONGER_SIDE / max(picture.image.shape[:2]), picture.figures
    plural = "s" if of.false_alarms > 1 else ""
    alarms = f", {figures.count(of.false_alarms)} false alarm{plural}" if of.false_alarms else ""
    return {
        "found": pictures.photo_uri(with_skeletons(picture.image, picture.found, skeleton, scale)),
        "wanted": pictures.photo_uri(with_skeletons(picture.image, picture.wanted, skeleton, scale)),
        "image": str(of.image_id),
        "about": f"{of.found} of {of.people} found{alarms}, quality {of.quality:.2f}",
    }


def _maps(of_image: MapsOfImage, skeleton: Skeleton) -> dict[str, Any]:
    """The answers for one image beside what they should be, and each of them by itself."""
    image, maps = of_image.image, of_image.maps
    rows = [
        (
            "Heatmaps",
            heatmap_picture(image, maps.heatmaps, skeleton),
            heatmap_picture(image, maps.wanted_heatmaps, skeleton),
        ),
        ("Part affinity fields", paf_picture(image, maps.pafs), paf_picture(image, maps.wanted_pafs)),
    ]
    panels = {
        ("Each joint’s heatmap", "Heatmap"): heatmap_panels(image, maps.heatmaps, skeleton),
        ("The strength of each limb’s field", "Strength of the field"): paf_panels(image, maps.pafs, skeleton),
    }
    return {
        "image": str(of_image.image_id),
        "rows": [
            {"name": name, "answered": pictures.photo_uri(answered), "wanted": pictures.photo_uri(wanted)}
            for name, answered, wanted in rows
        ],
        "panels": {
            title: [
                {"name": name, "alt": f"{kind}: {name}", "uri": pictures.photo_uri(panel, pictures.SMALL_PHOTO)}
                for name, panel in named
            ]
            for (title, kind), named in panels.items()
        },
    }


def _css(colour: tuple[int, int, int]) -> str:
    return "#" + bytes(colour).hex()
