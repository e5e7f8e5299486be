"""Figures for the rules: a model's own, its peers', and two models example by example."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pycocotools.cocoeval import COCOeval

from podline.documents import champions
from podline.documents.champions import Crowned
from podline.documents.evaluation import EVALUATION, ClassFigures, Evaluation, Figures
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metric import Metric
from podline.documents.pose_evaluation import PoseEvaluation
from podline.documents.pose_figures import JointFigures
from podline.documents.skeleton import side_of
from podline.errors import PodlineError
from podline.evaluation.classification import BINS
from podline.evaluation.guesses import Guesses
from podline.evaluation.moved_parts import ShareChange, moved_classes, moved_joints
from podline.evaluation.noise import average_precisions
from podline.evaluation.oks import close_joints, joint_names
from podline.evaluation.paired import chance_to_lose, changed
from podline.intervals import Z
from podline.inventory.catalogue import training_of
from podline.kinds.table import kind_of, read_evaluation
from podline.promotion.chance import Movement, Share, shown_spread, spread_of, spread_of_all
from podline.promotion.comparing import JudgedSplit
from podline.promotion.margins import MOST_PEERS, share_below
from podline.promotion.rules import ModelFigures, Odds, Paired, guessed_chance
from podline.recipes.promotion_settings import PromotionSettings
from podline.recipes.settings import Recipe
from podline.stages.specs import SPEC, TrainSpec
from podline.store.contract import Store

# Of the newest trainings of a recipe so many are looked at.
_LOOKED_AT = 60
_DRAWS = 200


def class_figures(document: Evaluation) -> ModelFigures:
    """How good a classifier is, as its evaluation says."""
    return class_standing(document.run, document.trained, document.per_class)


def pose_figures(document: PoseEvaluation) -> ModelFigures:
    """How good a pose network is, as its evaluation says."""
    return pose_standing(document.run, document.trained.metrics["ap"], document.trained.people, document.joints)


def class_standing(run: str, figures: Figures, classes: tuple[ClassFigures, ...]) -> ModelFigures:
    """A classifier's: accuracy, each class's share of right answers, calibration error."""
    return ModelFigures(
        run=run,
        measure="accuracy",
        main=Share(figures.metrics["top1"].value, figures.examples),
        parts={found.name: Share(found.accuracy.value, found.examples) for found in classes},
        calibration_error=figures.metrics["calibration_error"].value,
    )


def figures_of_guesses(run: str, guesses: Guesses, class_names: Sequence[str]) -> ModelFigures:
    """A classifier's, by its answers."""
    examples = np.bincount(guesses.labels, minlength=len(class_names)).tolist()
    right = np.bincount(guesses.labels[guesses.right], minlength=len(class_names)).tolist()
    return ModelFigures(
        run=run,
        measure="accuracy",
        main=Share(float(guesses.right.mean()), len(guesses.labels)),
        parts={
            name: Share(right[label] / examples[label] if examples[label] else 0.0, examples[label])
            for label, name in enumerate(class_names)
        },
        calibration_error=_calibration_error(guesses, np.ones(len(guesses.labels), np.int64)),
    )


def pose_standing(run: str, ap: Metric, people: int, joints: tuple[JointFigures, ...]) -> ModelFigures:
    """Return a pose network's figures: average precision, and of each joint the share that is close.

    AP is no share of people. It stands as a share among so many examples that chance spreads it as far as the
    bootstrap over images does; where that spreads it nowhere, among the people.
    """
    deviation, spread = (ap.high - ap.low) / (2 * Z), ap.value * (1 - ap.value)
    examples = round(spread / deviation**2) if deviation > 0 < spread else people
    return ModelFigures(
        run=run,
        measure="AP",
        main=Share(ap.value, max(examples, 1)),
        parts={
            found.joint: Share(found.close / found.labelled if found.labelled else 0.0, found.labelled)
            for found in joints
        },
    )


def examples_of(manifest: Manifest, split: str) -> tuple[str, ...]:
    """What a split holds, by checksums: equal for splits of two data sets that hold the same in the same order."""
    found = manifest.split(split)
    return (*(shard.sha256 for shard in found.shards), *((found.truth.sha256,) if found.truth else ()))


def peers_of(
    store: Store, champion: Crowned, candidate: str, judged: Callable[[str], Iterable[ModelFigures]]
) -> list[ModelFigures]:
    """Trainings that are as good as the champion but for chance, and were judged on the same examples.

    They have its recipe but for the seed, and its data, or were champions themselves.

    Args:
        store: the store.
        champion: whose peers.
        candidate: the run that is judged; it is no peer.
        judged: a run's figures on the examples that the two are compared on; none if it was not judged on them.
    """
    training = training_of(store, champion.run)
    crowned = {entry.run for entry in champions.standing(champions.history(store, training.recipe.name))}
    found = []
    for name in _newest(store, training.recipe.name):
        if name in (champion.run, candidate) or not store.exists(f"runs/{name}/{EVALUATION}"):
            continue
        peer = training_of(store, name)
        of_its_data = peer.fingerprint == training.fingerprint or name in crowned
        if of_its_data and _but_for_chance(peer.recipe) == _but_for_chance(training.recipe):
            found += judged(name)
        if len(found) == MOST_PEERS - 1:
            break
    return found


def champions_before(
    store: Store, line: Sequence[Crowned], candidate: str, examples: JudgedSplit
) -> list[ModelFigures]:
    """The champions before a candidate, the present one last, as far back as they were judged on the same examples.

    Args:
        store: the store.
        line: of champions that were not taken back.
        candidate: the run that is judged.
        examples: what it was judged on.
    """
    found: list[ModelFigures] = []
    for entry in reversed(line):
        if entry.run == candidate:
            continue
        figures = [*judged_on(store, entry.run, [examples])]
        if not figures:
            break
        found += figures
    return found[::-1]


def judged_on(store: Store, run: str, splits: Sequence[JudgedSplit]) -> Iterator[ModelFigures]:
    """A run's figures on some examples, if it was judged on a split that holds them and its files can be read.

    Args:
        store: the store.
        run: whose.
        splits: that hold these examples.
    """
    try:
        training = training_of(store, run)
        manifest = read_manifest(store, training.dataset_folder)
        for examples in splits:
            if examples_of(manifest, examples.split) == examples_of(examples.manifest, examples.split):
                yield _figures(store, training, examples)
                return
    except PodlineError:  # what another run has lost is no reason to refuse this one
        return


def _figures(store: Store, training: TrainSpec, examples: JudgedSplit) -> ModelFigures:
    document = read_evaluation(store, training.folder)
    kind = kind_of(document)
    if examples.places is None:
        return kind.figures(document)
    comparison = kind.comparison()
    return comparison.part(examples, comparison.left(store, training.folder, document)).figures


def _newest(store: Store, recipe: str) -> list[str]:
    """The runs of a recipe by their names, the last begun first."""
    specs = [found for found in store.listing("runs") if found.name.endswith(f"/{SPEC}") and found.name.count("/") == 2]
    specs = [found for found in specs if found.name.startswith(f"runs/{recipe}-")]
    newest = sorted(specs, key=lambda found: (-found.published, found.name))[:_LOOKED_AT]
    return [found.name.split("/")[1] for found in newest]


def _but_for_chance(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(exclude={"seed", "promotion"})


def paired_classes(
    before: Guesses, after: Guesses, class_names: tuple[str, ...], settings: PromotionSettings
) -> Paired:
    """Two classifiers on the same examples, one by one."""
    then, now = before.right, after.right
    main = Movement(changed(then, now), float(then.mean() + now.mean()) / 2)
    parts = _movements(moved_classes(before, after, class_names))
    of_all = _shown_of_all(parts, settings)
    return Paired(
        main=_odds_of(main, settings.spread, of_all, settings.margin),
        parts=_part_odds(parts, settings),
        calibration_deviation=_calibration_deviation(before, after),
        shown_spread=spread_of(of_all, main.share),
    )


def _movements(parts: Mapping[str, ShareChange]) -> dict[str, Movement]:
    return {name: Movement(moved.changed, (moved.before + moved.after) / 2) for name, moved in parts.items()}


def _part_odds(
    parts: Mapping[str, Movement], settings: PromotionSettings, kind: Callable[[str], str] = str
) -> dict[str, Odds]:
    """Of each part: by the spread that is assumed, or by the one that parts of other kinds show, whichever says less.

    What is wrong with a joint is wrong with the one of the other side too, as images are mirrored in training: each
    would excuse the other.
    """
    return {
        name: _odds_of(
            part, settings.part_spread, shown_spread(_of_other_kinds(parts, name, kind)), settings.part_margin
        )
        for name, part in parts.items()
    }


def _of_other_kinds(parts: Mapping[str, Movement], name: str, kind: Callable[[str], str]) -> list[Movement]:
    return [part for other, part in parts.items() if kind(other) != kind(name)]


def _shown_of_all(
    parts: Mapping[str, Movement], settings: PromotionSettings, kind: Callable[[str], str] = str
) -> float:
    """The spread of what counts, by what the parts show; not of the kind that fell most: it may be what is wrong."""
    most = max(parts, key=lambda name: (parts[name].angle, name), default="")
    return spread_of_all(settings.spread, shown_spread(_of_other_kinds(parts, most, kind)), len(parts))


def _of_either_side(joint: str) -> str:
    return side_of(joint)[1]


def _odds_of(movement: Movement, assumed: float, shown: float, margin: float) -> Odds:
    """How likely a movement is, by either spread; these and the margin are given for a share of one half."""
    counts, share = movement
    spreads, allowed = (spread_of(assumed, share), spread_of(shown, share)), share - share_below(share, margin)
    equal = max(chance_to_lose(counts, spreads[0]), chance_to_lose(counts, spreads[1], "student"))
    # One example more that only one of the two got right: of few, none may be so by luck.
    deviation = math.sqrt(counts.lost + counts.gained + 1) / counts.examples
    return Odds(equal, guessed_chance(allowed - counts.drop, deviation, *spreads), allowed)


def _calibration_deviation(before: Guesses, after: Guesses) -> float:
    """The deviation of the difference of two calibration errors, by drawing examples with replacement."""
    random, count = np.random.default_rng(0), len(after.labels)
    drawn = np.empty(_DRAWS)
    for draw in range(_DRAWS):
        times = np.bincount(random.integers(count, size=count), minlength=count)
        drawn[draw] = _calibration_error(after, times) - _calibration_error(before, times)
    return float(drawn.std(ddof=1))


def _calibration_error(guesses: Guesses, times: npt.NDArray[np.int64]) -> float:
    places = np.clip(np.ceil(guesses.confidences * BINS).astype(np.int64) - 1, 0, BINS - 1)
    gaps = np.bincount(places, (guesses.right - guesses.confidences) * times, BINS)
    return float(np.abs(gaps).sum() / times.sum())


def paired_poses(before: COCOeval, after: COCOeval, settings: PromotionSettings) -> Paired:
    """Two pose networks on the same images, one by one; a joint's images, with all their people, count as one each."""
    ap = average_precisions(before, after)["ap"]
    share = (before.stats[0] + after.stats[0]) / 2
    parts = _movements(moved_joints(close_joints(before), close_joints(after), joint_names(after)))
    sampled, margin = (ap.high - ap.low) / (2 * Z), share - share_below(share, settings.margin)
    shown = spread_of(_shown_of_all(parts, settings, _of_either_side), share)
    spreads = spread_of(settings.spread, share), shown
    equal, worse = (guessed_chance(by, sampled, *spreads) for by in (-ap.value, margin + ap.value))
    return Paired(
        main=Odds(equal, worse, margin),
        parts=_part_odds(parts, settings, _of_either_side),
        shown_spread=shown,
    )
