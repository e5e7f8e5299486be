"""Sections and verdict of a pose network's report."""

# pyright: standard
from __future__ import annotations

from collections.abc import Iterator, Sequence

from podline.base.drawing.drawing import ACCENT, MUTED, chart
from podline.base.drawing.svg import Svg
from podline.base.figures import count, percent
from podline.base.plurals import plural
from podline.compare.settings import NONE
from podline.documents.any_evaluation import Scored
from podline.documents.manifest import TRAINING
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.document import PCK, JointFigures, PoseEvaluation
from podline.kinds.pose.judged_pictures import JudgedPicture, judged_pictures, stored_maps
from podline.kinds.pose.maps import heatmap_panels, heatmap_picture, paf_panels, paf_picture
from podline.kinds.pose.skeletons import CENTER, LEFT, RIGHT, with_skeletons
from podline.recipes.measures import measure_named, metric_text, shown
from podline.report import verdict
from podline.report.blocks import Block, Chart, Fold, Grid, Heading, Key, Picture, Pictures, Table, Text, Tile
from podline.report.charts import words_on_the_left
from podline.report.facts import RunFacts
from podline.report.kind_report import Headline
from podline.report.pictures import SMALL_PHOTO, photo_uri
from podline.report.sections import section

# Size of pictures; they have twice as many pixels, for screens of high resolution.
_LONGER_SIDE = 560
_KEY = Key({"the subject’s left": LEFT, "the subject’s right": RIGHT, "middle": CENTER})
_RANKS = {"best": "The best", "median": "In the middle", "worst": "The worst"}


def headline(run: RunFacts) -> Headline:
    """Return the AP for the top of the page."""
    evaluation = PoseEvaluation.of(run.evaluation)
    known = evaluation.trained.metrics
    return Headline(
        about=f"for {_keypoints(run)} on the {evaluation.split} split of {evaluation.dataset}",
        guessing=evaluation.verdict(),
        tiles=[
            *(verdict.metric_tile(run, name) for name in (PCK, "ap50", "ap75", "ar") if name in known),
            Tile("images", count(evaluation.trained.images)),
            Tile("instances", count(evaluation.trained.people)),
        ],
    )


def _keypoints(run: RunFacts) -> str:
    return f"{run.manifest.skeleton.category} keypoints".strip()


@section("Pictures")
def pictures(run: RunFacts) -> Iterator[Block]:
    """Show the best, median and worst images, each with the detected and with the labelled people."""
    yield _KEY
    yield Text(
        f"Images of the {run.evaluation.split} split. An image’s quality is the sum of the OKS of the instances "
        "found, divided by the number of labelled instances plus false alarms. Left: instances found; right: labels.",
        "note",
    )
    gallery = list(_gallery(run, seen=False))
    nothing = f"No pictures: no instance in the {run.evaluation.split} split has a labelled joint."
    yield from gallery or [Text(nothing)]


@section("Pictures from the training data")
def seen_pictures(run: RunFacts) -> Iterator[Block]:
    """Show the best, median and worst training images, each with the detected and with the labelled people.

    Show nothing if the training split is judged: :func:`pictures` shows its images.
    """
    gallery = list(_gallery(run, seen=True))
    if run.evaluation.split != TRAINING and gallery:
        yield _KEY
        yield from gallery


def _gallery(run: RunFacts, *, seen: bool) -> Iterator[Block]:
    judged = judged_pictures(run.store, run.spec, run.manifest, PoseEvaluation.of(run.evaluation), seen=seen)
    for rank, name in _RANKS.items():
        if judged[rank]:
            yield Heading(name)
            yield Pictures([_pair(picture, run.manifest.skeleton) for picture in judged[rank]], "pairs")


def _pair(picture: JudgedPicture, skeleton: Skeleton) -> Picture:
    scale, of = _LONGER_SIDE / max(picture.image.shape[:2]), picture.figures
    alarms = f", {plural(of.false_alarms, 'false alarm')}" if of.false_alarms else ""
    about = f"{of.found} of {of.people} found{alarms}, quality {of.quality:.2f}"
    found, wanted = (
        photo_uri(with_skeletons(picture.image, poses, skeleton, scale)) for poses in (picture.found, picture.wanted)
    )
    return Picture(
        [
            (found, f"Image {of.image_id} with the instances found: {about}"),
            (wanted, f"Image {of.image_id} with the labelled instances"),
        ],
        about,
        [picture.name],
    )


@section("Maps of the network")
def maps(run: RunFacts) -> Iterator[Block]:
    """Show the heatmaps and fields of one image, beside their targets; nothing if the evaluation has no such image."""
    evaluation = PoseEvaluation.of(run.evaluation)
    stored = stored_maps(run.store, run.spec, run.manifest, evaluation)
    if stored is None:
        return
    (image, found), skeleton = stored, run.manifest.skeleton
    fields = bool(found.pafs.shape[-1])
    yield Text(
        f"For image {evaluation.maps_of}: all heatmaps at once, each joint in its skeleton’s colour"
        + ("; and the strongest part affinity field of each cell, with its direction as hue" if fields else "")
        + ". The right side shows the targets."
    )
    drawn = {"Heatmaps": [heatmap_picture(image, each, skeleton) for each in (found.heatmaps, found.wanted_heatmaps)]}
    if fields:
        drawn["Part affinity fields"] = [paf_picture(image, each) for each in (found.pafs, found.wanted_pafs)]
    for name, (answered, wanted) in drawn.items():
        yield Heading(name)
        sides = [
            (photo_uri(answered), f"{name} of the network"),
            (photo_uri(wanted), f"{name} of the target"),
        ]
        yield Pictures([Picture(sides)], "pairs")
    panels = {("Each joint’s heatmap", "Heatmap"): heatmap_panels(image, found.heatmaps, skeleton)}
    if fields:
        title = "The strength of each limb’s field", "Strength of the field"
        panels[title] = paf_panels(image, found.pafs, skeleton)
    for (title, what), named in panels.items():
        shown_panels = [Picture([(photo_uri(panel, SMALL_PHOTO), f"{what}: {name}")], name) for name, panel in named]
        yield Fold(title, Pictures(shown_panels, "panels"))


@section("Figures")
def metrics(run: RunFacts) -> Iterator[Block]:
    """Show every metric of the trained and the untrained network, and of the trained network on training images."""
    evaluation = PoseEvaluation.of(run.evaluation)
    sides = {
        f"trained, {evaluation.split} split": evaluation.trained,
        f"untrained, {evaluation.split} split": evaluation.untrained,
        "trained, images it has seen": evaluation.seen,
    }
    known = {name for side in sides.values() for name in side.metrics}
    rows = [
        {"": measure.label} | {title: _metric(side, measure.name) for title, side in sides.items()}
        for measure in shown(known)
    ]
    rows[1:1] = [
        {"": f"{measure_named(name).label} of the mean training pose in every image"}
        | {next(iter(sides)): metric_text(name, guessing)}
        for name, guessing in evaluation.guessed.items()
    ]
    rows += [
        {"": name} | {title: count(getattr(side, what)) for title, side in sides.items()}
        for name, what in (("images", "images"), ("instances", "people"), ("results", "results"))
    ]
    yield Table.of(rows)
    yield Text(
        "By pycocotools; each image counts once. Intervals are 95 % intervals of the bootstrap over images. Medium "
        "instances have an area of 32² to 96² pixels of their image. evaluation.json has every figure in full "
        f"precision, people-{evaluation.split}.json the instances found, as COCO results.",
        "note",
    )
    if PCK in known:
        yield Text(
            f"PCK@0.2 is the share of labelled joints that are predicted within 0.2 of {evaluation.pck_length}. An "
            "instance is paired with the result that AP matches at OKS 0.5. Each remaining result, highest score "
            "first, is paired with the most similar remaining instance.",
            "note",
        )
    yield Text(_threshold(evaluation))
    yield Heading("By joint")
    caption = "A joint is close if its similarity to the label is at least 0.5."
    yield Grid(Chart(_joint_chart(evaluation.joints), caption=caption), _joints(evaluation))


def _metric(side: Scored, name: str) -> str:
    return metric_text(name, side.metrics[name]) if name in side.metrics else NONE


def _threshold(evaluation: PoseEvaluation) -> str:
    """Return sentences about the choice of the score threshold, and its precision and recall."""
    chosen = evaluation.threshold
    if chosen is None:
        return "No score threshold could be chosen: no instance was found on training images."
    judged = chosen.judged
    if not judged.score:
        return (
            f"Each image has one instance, and each result is drawn and counted: on the {evaluation.split} split "
            f"{count(judged.right)} of {count(judged.people)} instances are found at OKS 0.5."
        )
    apart = "" if evaluation.split == chosen.chosen_on else "; the judged images did not influence it"
    return (
        f"Results are drawn and counted from a score of {judged.score:.3f} on. This threshold has the best F1 on "
        f"{plural(chosen.images, 'image')} of the {chosen.chosen_on} split{apart}. "
        f"On the {evaluation.split} split, {count(judged.right)} of {count(judged.people)} instances are found with "
        f"this threshold at OKS 0.5 (recall {percent(judged.recall)}), "
        f"and {count(judged.kept - judged.right)} of {count(judged.kept)} results are false alarms "
        f"(precision {percent(judged.precision)}). AP itself needs no threshold."
    )


def _joint_chart(joints: Sequence[JointFigures]) -> Svg:
    """Draw bars by joint: the shares of its labels in detected people, and of its labels predicted closely."""
    shares = [joint.close / joint.labelled if joint.labelled else 0.0 for joint in joints]
    found = [joint.in_found / joint.labelled if joint.labelled else 0.0 for joint in joints]
    names = [joint.joint.replace("_", " ") for joint in joints]
    alt = "Share of each joint’s labels that are predicted closely: " + ", ".join(
        f"{name} {percent(share)}" for name, share in zip(names, shares, strict=True)
    )
    with chart("joints", f"{alt}.", height=0.6 + 0.22 * len(names)) as drawing:
        (axes,) = drawing.axes()
        places = range(len(names))
        axes.barh(places, found, 0.62, color=MUTED, alpha=0.35, linewidth=0, label="in instances found")
        axes.barh(places, shares, 0.62, color=ACCENT, linewidth=0, label="and close")
        axes.set_yticks(places, names)
        words_on_the_left(axes)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the labelled joints")
        drawing.figure.legend(loc="outside upper right", ncols=2)
    return drawing.svg


def _joints(evaluation: PoseEvaluation) -> Table:
    """Return a table by joint: number of labels, of labels in detected people, and of close predictions."""
    rows = [
        {
            "joint": joint.joint.replace("_", " "),
            "labelled": count(joint.labelled),
            "in instances found": count(joint.in_found),
            "close": count(joint.close),
            "of those found": percent(joint.close / joint.in_found) if joint.in_found else NONE,
            "mean OKS": _share(joint.similarity) if joint.in_found else NONE,
            "median distance": NONE if joint.distance is None else _share(joint.distance),
            "PCK@0.2": metric_text(PCK, joint.pck) if joint.pck else NONE,
        }
        for joint in evaluation.joints
    ]
    return Table.of(rows)


def _share(value: float) -> str:
    return f"{value:.3f}"
