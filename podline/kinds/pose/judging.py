"""Evaluates a pose network on a split: decodes the people of every image once, and computes COCO's measure."""

# pyright: standard
from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pycocotools.cocoeval import COCOeval

from podline.base.arrays import Array
from podline.base.errors import ArtifactError, DivergenceError
from podline.base.frozen import JsonObject
from podline.base.progress import Reporter
from podline.contract.case import Case, Judgement
from podline.data.letterbox import LetterBox
from podline.data.people.truth import read_truth
from podline.data.reader import SplitReader, open_split
from podline.data.records import IMAGE
from podline.documents.any_evaluation import EVALUATION
from podline.documents.intervals import TAIL
from podline.documents.manifest import TRAINING, Manifest
from podline.documents.metric import Metric
from podline.documents.skeleton import Pair, Skeleton
from podline.evaluation.forward import Forward, News, answers_of
from podline.input.pipeline import EvaluationInput
from podline.kinds.pose.coco_results import Results, Truth, of_images, people_to_results
from podline.kinds.pose.decoding import DecodedPeople, decode_people
from podline.kinds.pose.document import MAPS, PCK, SEEN, ChosenThreshold, PoseEvaluation, PoseFigures, people_name
from podline.kinds.pose.maps import PoseMaps, maps_to_bytes
from podline.kinds.pose.oks import at_threshold, by_image, close_joints, joint_figures, judged, ranked, score_threshold
from podline.kinds.pose.oks_intervals import drawn_figures, figures_within
from podline.kinds.pose.pck import Pck, pck
from podline.kinds.pose.settings import PoseSettings
from podline.kinds.pose.stage_measures import HEATMAP, PAF, kind_of
from podline.kinds.pose.targets import pose_targets
from podline.recipes.kind_table import read_evaluation
from podline.recipes.settings import Recipe
from podline.store.contract import Store
from podline.training.plan import plan_training

ID, SIZE = "image_id", "size"
FIELDS = (IMAGE, ID, SIZE)
"""The record fields that detecting people needs."""

_SEEN_AT_LEAST = 200
_UNKNOWN = Metric(value=0.0, low=0.0, high=1.0)
_LEAST = 0.001
"""The least difference from guessing that counts: the smallest that three decimals show."""


class _Split(NamedTuple):
    """Some records of a split, and their annotations.

    Attributes:
        batches: batches of their images.
        truth: a COCO document about these images.
        reader: reader of the whole split.
        ids: positions of the records in the split.
        image_ids: COCO's image id of each record.
    """

    batches: EvaluationInput
    truth: Truth
    reader: SplitReader
    ids: npt.NDArray[np.int64]
    image_ids: npt.NDArray[np.int64]

    def judged(self, people: Results, poses: PoseSettings) -> _Judged:
        """Evaluate people that a network detects in these records."""
        return _Judged.of(judged(self.truth, people), poses.pck_joints)


def judge(case: Case, before: Forward, after: Forward) -> Judgement:
    """Detect the people of a split with a run's network, before and after training, and evaluate both.

    The people, as COCO results, and the network's maps of one image are written beside the document.

    Args:
        case: the evaluation.
        before: the outputs of the network with random weights; see :func:`pose_answers`.
        after: the outputs of the trained network.

    Raises:
        ArtifactError: the data set has no truth, the split has no labelled person, or the data have changed.
        DivergenceError: a network's outputs are not finite.
    """
    spec, recipe = case.spec, case.recipe
    poses = PoseSettings.of(recipe).on(case.manifest.facts)
    split = _split(case, spec.split, None)
    trained_on = plan_training(recipe, case.manifest).order.ids
    seen = _split(case, TRAINING, trained_on[: max(len(split.ids), _SEEN_AT_LEAST)])
    is_seen = spec.split == TRAINING
    news = News(case.reporter, 2 * len(split.ids) + (0 if is_seen else len(seen.ids)))
    untrained, people = (find_people(model, split.batches, poses, news.done) for model in (before, after))
    if is_seen:
        wanted = set(seen.image_ids.tolist())
        seen_people = [person for person in people if person[ID] in wanted]
    else:
        seen_people = find_people(after, seen.batches, poses, news.done)
    evaluated = split.judged(people, poses), split.judged(untrained, poses), seen.judged(seen_people, poses)
    document = _document(case.of_run(), split, seen, poses, *evaluated)
    found = {people_name(spec.split): people, people_name(SEEN): seen_people}
    files = {name: (json.dumps(results) + "\n").encode() for name, results in found.items()}
    if document.maps_of is not None:
        files[MAPS] = maps_to_bytes(_maps(after, split, document.maps_of, poses))
    for each in (split, seen):
        each.reader.require_unchanged()
    return Judgement(document, files)


def chosen_threshold(store: Store, folder: str) -> float | None:
    """Return the score threshold of the evaluation in a run's folder; None without evaluation or threshold."""
    evaluation = read_evaluation(store, folder) if store.exists(f"{folder}/{EVALUATION}") else None
    chosen = evaluation.threshold if isinstance(evaluation, PoseEvaluation) else None
    return chosen.judged.score if chosen else None


def pose_answers(model: Callable[..., tf.Tensor], strategy: tf.distribute.Strategy) -> Forward:
    """Return a function that yields, for each batch of an input, the last stages' heatmaps and fields."""
    return answers_of(model, strategy, last_stages)


def last_stages(outputs: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the last heatmaps and fields from a network's outputs; fields have 0 channels if the network has none."""
    last = {
        kind_of(stage): outputs[stage]
        for stage in sorted(outputs, key=lambda stage: int(stage.partition("_")[0].removeprefix("stage")))
    }
    return last[HEATMAP], last.get(PAF, last[HEATMAP][:, :, :, :0])


def detected(
    model: Callable[..., tf.Tensor],
    recipe: Recipe,
    reader: SplitReader,
    manifest: Manifest,
    reporter: Reporter,
    ids: npt.NDArray[np.int64] | None,
) -> Results:
    """Detect the people in the images at some positions of a split, (n,), or in all; return COCO results.

    Raises:
        DivergenceError: an output is not finite.
        ArtifactError: the data changed while they were read.
    """
    batches = EvaluationInput(reader, manifest, FIELDS, batch_size=recipe.evaluation_batch_size, ids=ids)
    answers, news = pose_answers(model, tf.distribute.get_strategy()), News(reporter, batches.count)
    people = find_people(answers, batches, PoseSettings.of(recipe), news.done)
    reader.require_unchanged()
    return people


def find_people(
    answers: Forward, batches: EvaluationInput, poses: PoseSettings, news: Callable[[int], None]
) -> Results:
    """Detect the people in each image; return COCO results in pixels of the original images.

    Raises:
        DivergenceError: an output is not finite.
    """
    with batches.explained():
        skeleton = batches.manifest.skeleton
        return [person for found in _decoded(answers(batches), poses, skeleton, news) for person in found]


def _decoded(
    answered: Iterator[tuple[tuple[Array, Array], dict[str, Array]]],
    poses: PoseSettings,
    skeleton: Skeleton,
    news: Callable[[int], None],
) -> Iterator[Results]:
    """Yield the people of each batch; decode a batch in a thread while the network runs on the next."""
    with ThreadPoolExecutor(1) as decoder:
        waiting: Future[Results] | None = None
        for (heatmaps, pafs), fields in answered:
            following = decoder.submit(_results, heatmaps, pafs, fields[ID][:, 0], fields[SIZE], poses, skeleton)
            if waiting:
                yield waiting.result()
            waiting = following
            news(len(heatmaps))
        if waiting:
            yield waiting.result()


def _results(
    heatmaps: npt.NDArray[np.float32],
    pafs: npt.NDArray[np.float32],
    image_ids: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    poses: PoseSettings,
    skeleton: Skeleton,
) -> Results:
    for image, finite in zip(image_ids, np.isfinite(heatmaps.sum((1, 2, 3)) + pafs.sum((1, 2, 3))), strict=True):
        if not finite:
            raise DivergenceError(
                f"image {image}: the network's outputs are not finite, since its training diverged; train again with "
                "a lower learning rate"
            )
    found = decode_people(heatmaps, pafs, poses.targets.stride, poses.decoding, skeleton)
    return [
        person
        for people, image, (width, height) in zip(found, image_ids.tolist(), sizes.tolist(), strict=True)
        for person in people_to_results(people, image, LetterBox(width, height, poses.side), skeleton)
    ]


def _split(case: Case, name: str, ids: npt.NDArray[np.int64] | None) -> _Split:
    store, folder, manifest = case.store, case.spec.dataset_folder, case.manifest
    reader = open_split(store, folder, manifest, name, case.reporter)
    taken = np.arange(len(reader)) if ids is None else ids
    image_ids = reader.gather(taken, [ID])[ID][:, 0]
    truth = of_images(read_truth(store, folder, manifest, name), image_ids.tolist())
    batches = EvaluationInput(reader, manifest, FIELDS, batch_size=case.spec.batch_size, ids=ids)
    return _Split(batches, truth, reader, taken, image_ids)


def _mean_person_everywhere(seen: _Split, split: _Split, side: int) -> Results:
    """Return the guessing baseline: the mean training pose as the one person of each image."""
    skeleton = split.batches.manifest.skeleton
    joints = len(skeleton.joints)
    keypoints = seen.reader.gather(seen.ids, ["keypoints"])["keypoints"].reshape(-1, joints, 3)
    labelled = keypoints[..., 2:] > 0
    times = labelled.sum(axis=0)
    pose = np.zeros((1, joints, 3), np.float32)
    pose[0, :, :2] = np.where(labelled, keypoints[..., :2], 0).sum(axis=0) / np.maximum(times, 1)
    pose[0, :, 2:] = times > 0
    people = DecodedPeople(pose, np.ones(1, np.float32))
    sizes = split.reader.gather(split.ids, [SIZE])[SIZE].tolist()
    return [
        person
        for image, (width, height) in zip(split.image_ids.tolist(), sizes, strict=True)
        for person in people_to_results(people, image, LetterBox(width, height, side), skeleton)
    ]


def _document(
    of_run: JsonObject,
    split: _Split,
    seen: _Split,
    poses: PoseSettings,
    trained: _Judged,
    untrained: _Judged,
    memory: _Judged,
) -> PoseEvaluation:
    if not trained.figures.people:
        raise ArtifactError(
            f"no image of the {of_run['split']} split has a labelled person, so nothing can be evaluated; "
            "give a split with labelled people"
        )
    guessing = split.judged(_mean_person_everywhere(seen, split, poses.side), poses)
    better_in = trained.better_in(untrained, guessing)
    after, on_seen = trained.evaluation, memory.evaluation
    # With one subject per image, every detected person counts, even with a low score.
    score = 0.0 if poses.subjects == "one" else score_threshold(on_seen)
    pictures = ranked(by_image(after, score or 0.0))
    joints = zip(joint_figures(after), trained.pck.joints, strict=True)
    return PoseEvaluation(
        **of_run,
        trained=trained.figures,
        untrained=untrained.figures,
        seen=memory.figures,
        guessing=guessing.figures.metrics["ap"],
        guessing_pck=guessing.pck.whole,
        pck_joints=poses.pck_joints,
        better_than_guessing=bool(better_in),
        better_in=better_in,
        learned=bool(better_in)
        or bool(memory.better_in(seen.judged(_mean_person_everywhere(seen, seen, poses.side), poses))),
        threshold=None
        if score is None
        else ChosenThreshold(
            chosen_on=TRAINING,
            images=len(seen.ids),
            seen=at_threshold(on_seen, score),
            judged=at_threshold(after, score),
        ),
        joints=tuple(joint.model_copy(update={PCK: share}) for joint, share in joints),
        pictures=pictures,
        seen_pictures=ranked(by_image(on_seen, score or 0.0)),
        maps_of=next((image.image_id for image in (*pictures.median, *pictures.best)), None),
    )


class _Judged(NamedTuple):
    """The evaluation of the people that one network detects on some images.

    Attributes:
        evaluation: pycocotools' evaluation.
        figures: the figures of the evaluation.
        pck: the PCK.
        drawn: AP and PCK of each bootstrap sample of images, (draws,) each; all networks use the same samples.
    """

    evaluation: COCOeval
    figures: PoseFigures
    pck: Pck
    drawn: Mapping[str, npt.NDArray[np.float64]]

    @classmethod
    def of(cls, evaluation: COCOeval, pair: Pair | None) -> _Judged:
        """Compute the figures of an evaluation; see :func:`podline.kinds.pose.pck.pck`."""
        drawn, joints = drawn_figures(evaluation), pck(evaluation, pair)
        known = figures_within(evaluation, drawn) | ({PCK: joints.whole} if joints.whole else {})
        figures = PoseFigures(
            images=len(evaluation.cocoGt.imgs),
            people=len(close_joints(evaluation)),
            results=len(evaluation.cocoDt.anns),
            metrics={"ap": _UNKNOWN, "ar": _UNKNOWN} | known,
        )
        return cls(evaluation, figures, joints, {"ap": drawn["ap"], PCK: joints.drawn})

    def better_in(self, *others: _Judged) -> tuple[str, ...]:
        """Return those of the names ``ap`` and ``pck`` in which this network is better than each of ``others``.

        Better: higher by at least 0.001 in at least 97.5 % of the bootstrap samples.
        """
        return tuple(
            name
            for name in self.drawn
            if all(np.nanquantile(self.drawn[name] - each.drawn[name], TAIL) >= _LEAST for each in others)
        )


def _maps(answers: Forward, split: _Split, image_id: int, poses: PoseSettings) -> PoseMaps:
    """Run the network on one image; return its maps and the target maps."""
    record = split.ids[split.image_ids == image_id]
    alone = EvaluationInput(
        split.reader, split.batches.manifest, FIELDS, batch_size=split.batches.batch_size, ids=record
    )
    [((heatmaps, pafs), _)] = answers(alone)
    fields = split.reader.gather(record, ["keypoints", "ignored"])
    skeleton = split.batches.manifest.skeleton
    has_fields = bool(pafs.shape[-1])
    given = fields["keypoints"], fields["ignored"], poses.side, poses.targets, skeleton
    wanted = pose_targets(*given, fields=has_fields)
    return PoseMaps(heatmaps[0], pafs[0], np.asarray(wanted.heatmaps)[0], np.asarray(wanted.pafs)[0])
