"""The stage that decides on a promotion, on runs that were really trained; small ones."""

from __future__ import annotations

import json
import os
import shutil
from collections import OrderedDict
from dataclasses import replace
from hashlib import sha256

import keras
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from ledger_entries import night
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish_dataset
from trained_runs import trained

from podline.base.errors import ArtifactError, SettingsError, StoreError, StoreUnavailableError, UndecidedError
from podline.base.progress import Event, Reporter, silent
from podline.champions import exports
from podline.champions.finding import find
from podline.champions.promote import promote, reference_of
from podline.cli import cli
from podline.commands.models import _spec as spec_of
from podline.commands.models import models_group
from podline.compare.comparison import compare
from podline.compare.known import evaluated
from podline.compare.lost import explain
from podline.compare.runs import compare_runs
from podline.documents import champions
from podline.documents.champions import Crowned
from podline.documents.completion import completion_name, read_completion
from podline.documents.intervals import wilson_interval
from podline.documents.ledger_entry import Entry
from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.promotion import SAVED_MODEL, Check, Promotion, read_promotion
from podline.kinds.classification.guesses import Guesses
from podline.ledger.inventory.catalogue import training_of
from podline.ledger.inventory.invalidation import forget
from podline.ledger.recording import data_of, outcome_of
from podline.recipes.kind_table import read_evaluation
from podline.recipes.measures import metric_text
from podline.recipes.promotion_settings import PromotionSettings
from podline.stages.completed import complete
from podline.stages.specs import WEIGHTS, PromoteResult, PromoteSpec
from podline.stages.table import PROMOTE
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.train import train

TEST = 120
OTHER = "fedcba9876543210"
# So narrow that no test split of this size shows it.
NARROW = PromotionSettings(margin=0.001)

pytestmark = pytest.mark.usefixtures("few_layers")


def spec(store: Store, run: str, **changes) -> PromoteSpec:
    return spec_of(store, run, (), anyway=False, reason="").model_copy(update={"again": False} | changes)


def decision(store: Store, run: str) -> Promotion:
    found = read_promotion(store, f"runs/{run}")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root, train=256, test=TEST)
    return open_store(root)


@pytest.fixture(scope="module")
def runs(store) -> tuple[str, str]:
    return trained(store, 0), trained(store, 1)


@pytest.fixture
def fresh(store, runs, monkeypatch) -> Store:
    """The store without champions; a SavedModel, which takes half of a promotion's time, is the model itself."""

    def saved_model(_store, _name, model, **_how):
        return lambda images: exports.flat(model(images, training=False))

    monkeypatch.setattr(exports, "_saved_model", saved_model)
    for name in store.list("models"):
        store.delete(name)
    for run in runs:
        store.delete(f"runs/{run}/promotion.json")
    return store


def test_the_first_model_is_the_champion_and_the_next_is_held_against_it(fresh, runs):
    told: list[Event] = []
    first, second = (promote(spec(fresh, run), Reporter("promote", told.append)) for run in runs)
    assert not any("evaluating" in event.get("message", "") for event in told), "the stored answers are used"
    assert (first.promoted, first.reference) == (True, "")
    assert 0 < first.seconds < 600
    assert (second.promoted, second.reference, second.refusals) == (True, runs[0], ())
    assert [entry.run for entry in champions.history(fresh, "t")] == list(runs)
    found = decision(fresh, runs[1])
    assert (found.number, found.known, found.champion) == (2, (runs[0],), runs[0])
    [main] = [check for check in found.checks if check.rule == "main"]
    assert f"refused from \N{MINUS SIGN}{-100 * main.refused_from:.1f} points" in second.thresholds
    assert second.floor == pytest.approx(main.before + main.refused_from)


def test_a_margin_that_cannot_be_shown_leaves_a_model_undecided_and_it_is_judged_again(fresh, runs):
    promote(spec(fresh, runs[0]), silent())
    asked = spec(fresh, runs[1], rules=NARROW)
    result, found = promote(asked, silent()), decision(fresh, runs[1])
    assert (result.verdict, result.promoted, result.refusals) == ("undecided", False, ())
    assert (found.verdict, found.number, found.refusals) == ("undecided", 0, ())
    assert found.checks[0].undecided
    assert result.doubt == found.doubt() == found.lines()[1]
    assert result.doubt.startswith("accuracy: ")
    assert "A change between the two limits cannot be decided with 1 training of" in result.doubt
    with_seeds = NARROW.model_copy(update={"seeds": 2})
    assert asked.model_copy(update={"rules": with_seeds}).digest() == asked.digest()
    assert [entry.run for entry in champions.history(fresh, "t")] == [runs[0]]
    assert PROMOTE.find(asked, silent()) is None
    insisted = promote(asked.model_copy(update={"anyway": True}), silent())
    assert (insisted.verdict, insisted.doubt) == ("promoted", "")
    assert "champion against the rules" in insisted.headline
    assert champions.history(fresh, "t")[-1].reference, "a person made it the reference"


def test_what_was_decided_is_found_and_a_rollback_is_not_undone(fresh, runs):
    for run in runs:
        promote(spec(fresh, run), silent())
    # As one that was killed after its change leaves it: the next promotion finishes it.
    fresh.delete(f"runs/{runs[1]}/promotion.json")
    assert PROMOTE.find(spec(fresh, runs[1]), silent()) is None
    again = promote(spec(fresh, runs[1]), silent())
    assert (again.promoted, again.reference, len(champions.history(fresh, "t"))) == (True, runs[0], 2)
    champions.roll_back(fresh, "t", "slow")
    found = PROMOTE.find(spec(fresh, runs[1]), silent())
    assert found.reused
    assert champions.champion(fresh, "t").run == runs[0]
    assert PROMOTE.find(spec(fresh, runs[1], again=True), silent()) is None
    assert promote(spec(fresh, runs[1], again=True), silent()).promoted
    assert [entry.run for entry in champions.history(fresh, "t")] == [*runs, runs[0], runs[1]]
    assert decision(fresh, runs[1]).reference == runs[0]
    # A repeated promotion compares neither with the model itself, nor with a champion that was rolled back.
    promote(spec(fresh, runs[1], again=True), silent())
    assert (decision(fresh, runs[1]).reference, decision(fresh, runs[1]).known) == (runs[0], (runs[0],))
    with pytest.raises(ArtifactError, match="evaluate the run again"):
        promote(spec(fresh, runs[0], evaluation_sha256="0" * 64), silent())


def test_a_champion_that_is_promoted_again_is_the_new_reference_only_if_a_person_insists(fresh, runs, monkeypatch):
    for run in runs:
        promote(spec(fresh, run), silent())
    for _ in range(2):
        insisted = promote(spec(fresh, runs[1], anyway=True), silent())
        assert (insisted.promoted, insisted.reference) == (True, runs[0])
    *_, entry = entries = champions.history(fresh, "t")
    assert (len(entries), entry.run, entry.reference) == (3, runs[1], True)
    assert champions.roll_back(fresh, "t").run == runs[0]
    assert [entry.run for entry in champions.standing(champions.history(fresh, "t"))] == [runs[0]]
    promote(spec(fresh, runs[1]), silent())
    better = Check(rule="main", name="accuracy", refused=False, better=True, message="better")
    monkeypatch.setattr("podline.champions.promote.checks_of", lambda *_: [better])
    assert "reference" not in promote(spec(fresh, runs[1]), silent()).headline
    champions.roll_back(fresh, "t")
    assert promote(spec(fresh, runs[1]), silent()).headline.endswith(f"it is better than {runs[0]}")
    assert champions.champion(fresh, "t").reference


def test_a_damaged_champion_is_never_trained_again_and_names_what_helps(fresh, runs, tmp_path, monkeypatch):
    champion, other = runs
    fresh = open_store(shutil.copytree(fresh.root, tmp_path / "root"))

    def saved_model(store, name, model, **_how):
        store.publish_bytes(f"{name}/saved_model.pb", os.urandom(10), replace=True)
        return lambda images: exports.flat(model(images, training=False))

    monkeypatch.setattr(exports, "_saved_model", saved_model)
    assert promote(spec(fresh, champion), silent()).promoted
    training, made = training_of(fresh, champion), bytes_of(fresh, f"runs/{champion}/{SAVED_MODEL}")
    # As an older Podline left it after a second training: weights, record and evaluation are those of another model.
    record = read_completion(fresh, training.folder, "train")
    weights = fresh.read_bytes(f"runs/{other}/{WEIGHTS}")
    fresh.publish_bytes(f"{training.folder}/{WEIGHTS}", weights, replace=True)
    document = record.model_copy(update={"result": record.result | {"weights_sha256": sha256(weights).hexdigest()}})
    fresh.publish_json(completion_name(training.folder, "train"), document.model_dump(mode="json"), replace=True)
    for again in (lambda: train(training, silent()), lambda: forget(training)):
        with pytest.raises(SettingsError, match=r"was promoted as number 1 of t, .* another --seed.*models rollback t"):
            again()
    assert fresh.exists(completion_name(training.folder, "train"))

    with pytest.raises(ArtifactError, match=r"of champion number 1; .*models rollback t"):
        promote(spec(fresh, champion), silent())
    assert bytes_of(fresh, f"runs/{champion}/{SAVED_MODEL}") == made != {}
    with pytest.raises(ArtifactError, match=rf"reference {champion}.*rollback t`, or `podline models promote {other}"):
        promote(spec(fresh, other), silent())
    assert not fresh.list(f"runs/{other}/{SAVED_MODEL}")
    assert promote(spec(fresh, other, anyway=True), silent()).promoted
    assert any(check.warned and "not compared" in check.message for check in decision(fresh, other).checks)


def bytes_of(store: Store, folder: str) -> dict[str, bytes]:
    return {name: store.read_bytes(name) for name in store.list(folder)}


def test_every_form_answers_what_the_trained_model_answers(fresh, runs, monkeypatch):
    monkeypatch.undo()  # a SavedModel is made
    assert promote(spec(fresh, runs[0], rules=PromotionSettings(tflite=True)), silent()).refusals == ()
    found = {file.form: file for file in decision(fresh, runs[0]).exports}
    assert {file.same for file in found.values()} == {True}
    images = drawn(TEST, 1)["image"]
    expected = np.asarray(keras.models.load_model(str(fresh.local(found["keras"].name)), compile=False)(images))
    saved = tf.saved_model.load(str(fresh.local(found["savedmodel"].name)))
    np.testing.assert_allclose(np.asarray(saved.serve(images)), expected, atol=1e-4)
    [lite] = exports.lite_model(fresh.read_bytes(found["tflite"].name))(images)
    np.testing.assert_allclose(lite, expected, atol=1e-3)
    there = bytes_of(fresh, f"runs/{runs[0]}")
    tried = promote(spec(fresh, runs[0], rules=PromotionSettings(tflite=True), dry_run=True), silent())
    assert (tried.verdict, bytes_of(fresh, f"runs/{runs[0]}") == there) == ("promoted", True)


def test_an_export_that_answers_otherwise_refuses_by_name_even_if_a_person_insists(fresh, runs, tmp_path, monkeypatch):
    fresh, name = open_store(shutil.copytree(fresh.root, tmp_path / "root")), f"runs/{runs[0]}/model/model.keras"
    whole = fresh.read_bytes(name)
    other = keras.models.load_model(str(fresh.local(name)), compile=False)
    other.set_weights([weights + 0.5 for weights in other.get_weights()])
    other.save(str(fresh.local(name)))
    result = promote(spec(fresh, runs[0], anyway=True), silent())
    assert not result.promoted
    [refusal] = result.refusals
    assert refusal.startswith(f"export keras: outputs of {name} differ by")
    fresh.publish_bytes(name, whole[:-200], replace=True)
    assert "cannot be compared: " in promote(spec(fresh, runs[0]), silent()).refusals[0]
    fresh.publish_bytes(name, whole, replace=True)
    assert champions.champion(fresh, "t") is None
    assert PROMOTE.find(spec(fresh, runs[0]), silent()) is None
    nothing = np.full((1, len(CLASS_NAMES)), np.nan)
    monkeypatch.setattr(exports, "_saved_model", lambda *_, **_how: lambda images: [nothing.repeat(len(images), 0)])
    result = promote(spec(fresh, runs[0], anyway=True), silent())
    assert not result.promoted
    assert result.refusals[0].endswith("cannot be compared: some outputs are NaN or infinite")


@pytest.mark.parametrize("error", [StoreError, StoreUnavailableError])
def test_a_store_that_fails_during_the_export_is_no_refusal(fresh, runs, monkeypatch, error):
    def saved_model(*_, **_how):
        raise error("cannot write")

    monkeypatch.setattr(exports, "_saved_model", saved_model)
    with pytest.raises(error, match="cannot write"):
        promote(spec(fresh, runs[0]), silent())
    assert read_promotion(fresh, f"runs/{runs[0]}") is None


def test_a_difference_that_is_no_number_is_the_largest_wherever_it_is():
    zero, nothing = np.zeros((1, 2)), np.full((1, 2), np.nan)
    assert np.isnan(exports.largest([zero, zero], [nothing, zero]))
    assert np.isnan(exports.largest([zero, zero], [zero, nothing]))


def test_outputs_of_any_mapping_have_the_order_of_their_names():
    assert exports.flat(OrderedDict(b=1, a=2)) == exports.flat({"b": 1, "a": 2}) == [2, 1]


def test_a_champion_of_other_test_examples_is_judged_on_the_candidates(fresh, runs):
    promote(spec(fresh, runs[0]), silent())
    splits = {"train": drawn(256, 0), "test": drawn(90, 7)}
    publish_dataset(fresh.uri, splits=splits, fingerprint=OTHER)
    later = trained(fresh, 5, OTHER)
    told: list[Event] = []
    result = promote(spec(fresh, later), Reporter("promote", told.append))
    assert any("evaluating the reference" in event.get("message", "") for event in told)
    assert result.reference == runs[0]
    [main] = [check for check in decision(fresh, later).checks if check.rule == "main"]
    assert main.before == right_answers(fresh, runs[0], splits["test"]).mean()
    assert result.compared.startswith(f"compared on 90 test examples of sample-{OTHER}; 0 of these are also in ")


def joined(*parts):
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def some(examples, start, stop):
    return {name: values[start:stop] for name, values in examples.items()}


def right_answers(store, run, examples):
    model = keras.models.load_model(str(store.local(f"runs/{run}/model/model.keras")), compile=False)
    return np.argmax(np.asarray(model(examples["image"])), 1) == examples["label"]


def judged(store: Store, run: str, fingerprint: str) -> Entry:
    """The entry of a run that was judged."""
    folder = f"runs/{run}"
    found = outcome_of(read_evaluation(store, folder), 1, 1, store.sha256(f"{folder}/evaluation.json"))
    data = data_of(read_manifest(store, dataset_folder("sample", fingerprint)))
    return night(recipe="t", run=run, outcome=found, data=data)


def test_where_data_changed_the_examples_of_both_count_and_new_ones_are_told_beside(fresh, runs):
    promote(spec(fresh, runs[0]), silent())
    grown, new, test = "aaaa456789abcdef", 30, drawn(TEST, 1)
    # At other places, and the first of the old ones is gone.
    later_test = joined(drawn(new, 7), some(test, 1, TEST))
    splits = {"train": joined(drawn(256, 0), drawn(64, 8)), "test": later_test}
    publish_dataset(fresh.uri, splits=splits, fingerprint=grown)
    later = trained(fresh, 5, grown)
    result, found = promote(spec(fresh, later), silent()), decision(fresh, later)
    assert (found.compared.shared, found.compared.fresh) == (TEST - 1, new)
    rights = [right_answers(fresh, run, later_test) for run in (runs[0], later)]
    [main] = [check for check in found.checks if check.rule == "main"]
    assert (main.before, main.after) == tuple(right[new:].mean() for right in rights)
    before, after = (metric_text("top1", wilson_interval(int(right[:new].sum()), new)) for right in rights)
    assert found.compared.rows()[1] == ("not in the reference's data", f"{new}", after, before)
    assert result.compared in found.lines()
    assert result.compared.startswith(f"compared on the {TEST - 1} test examples that are in both sample-{FINGERPRINT}")

    entries = [judged(fresh, runs[0], FINGERPRINT), judged(fresh, later, grown)]
    [verdict] = compare_runs(fresh, entries).verdicts
    then, now = (right[new:] for right in rights)
    counted = verdict.difference.paired, verdict.difference.gained, verdict.difference.lost
    assert counted == (True, (now & ~then).sum(), (then & ~now).sum())
    both = f"on {TEST - 1} test examples that both data sets have, {new} are new"
    assert verdict.examples == f"{both}: accuracy {after} vs {before} on these"
    fresh.delete(f"runs/{later}/promotion.json")
    [verdict] = compare_runs(fresh, entries).verdicts
    assert verdict.examples == both


def test_an_example_in_one_split_here_and_in_the_other_there_refuses_by_name(fresh, runs, tmp_path):
    promote(spec(fresh, runs[0]), silent())
    moved, learned, tested = "bbbb456789abcdef", drawn(256, 0), drawn(TEST, 1)
    test = joined(some(tested, 5, TEST), some(learned, 5, 7))
    splits = {"train": joined(some(tested, 0, 5), some(learned, 10, 256)), "test": test}
    publish_dataset(fresh.uri, splits=splits, fingerprint=moved)
    later = trained(fresh, 5, moved)
    result = promote(spec(fresh, later), silent())
    assert result.verdict == "refused"
    by_candidate, by_reference = result.refusals[:2]
    assert by_candidate.startswith(
        f"found 5 test examples of sample-{FINGERPRINT} (test[0], test[1], test[2] and 2 more) among the "
    )
    assert f"(train[0], train[1], train[2] and 2 more): the candidate was trained on them, by {later}" in by_candidate
    assert by_reference.startswith(
        f"found 2 test examples of sample-{moved} (test[115], test[116]) among the training "
    )
    assert f"(train[5], train[6]): the reference was trained on them, by {runs[0]}; keep each" in by_reference
    compared = decision(fresh, later).compared
    # Neither among those compared on nor among the new ones.
    assert (compared.shared, compared.fresh) == (TEST - 5, 0)
    copy = open_store(shutil.copytree(fresh.root, tmp_path / "root"))
    copy.delete(f"runs/{runs[0]}/guesses.npz")
    by_decision = compare(copy, evaluated(copy, runs[0]), evaluated(copy, later), silent()).comparison
    assert (by_decision.examples, by_decision.difference.examples) == (compared.sentence(), TEST - 5)
    anyway = promote(spec(fresh, later, anyway=True), silent())
    assert (anyway.promoted, anyway.refusals) == (True, result.refusals)


def test_a_drop_is_explained_example_by_example(fresh, runs, tmp_path):
    for run in runs:
        promote(spec(fresh, run), silent())
    store = open_store(shutil.copytree(fresh.root, tmp_path / "root"))
    before, after = (Guesses.read(store, f"runs/{run}") for run in runs)
    after = replace(after, predictions=np.where(after.labels == 2, 0, after.predictions))
    store.publish_bytes(f"runs/{runs[1]}/guesses.npz", after.to_bytes(), replace=True)
    store.delete(completion_name(f"runs/{runs[1]}", "evaluate"))  # which tells otherwise
    pairing = compare(store, evaluated(store, runs[0]), evaluated(store, runs[1]), silent())
    why, pictures, _ = explain(store, pairing)
    command = ["runs", "compare", runs[1], "--why", "--root", store.uri, "--out", str(tmp_path / "a.png")]
    said = CliRunner().invoke(cli, command, catch_exceptions=False)
    lost = set(np.flatnonzero(before.right & ~after.right).tolist())
    assert (why.lost, why.gained) == (len(lost), np.sum(~before.right & after.right))
    assert lost.issuperset(example.record for example in why.examples)
    test = drawn(TEST, 1)
    for example, (image,) in zip(why.examples, pictures, strict=True):
        assert np.array_equal(image, test["image"][example.record])
        assert example.name == CLASS_NAMES[test["label"][example.record]]
        assert example.after.startswith(CLASS_NAMES[after.predictions[example.record]])
    assert why.comparison.difference.value == pytest.approx(after.right.mean() - before.right.mean())
    assert {part.name for part in why.comparison.parts} == set(CLASS_NAMES)
    assert said.output.splitlines() == why.lines()
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.usefixtures("stages_here")
def test_the_commands_tell_who_is_champion_and_who_was(fresh, runs):
    def said(*words: str) -> str:
        done = CliRunner().invoke(models_group, [*words, "--root", fresh.uri], catch_exceptions=False)
        return done.output

    promote(spec(fresh, runs[0]), silent())
    command = ["promote", runs[1], "--root", fresh.uri, "--set", "promotion.margin=0.001"]
    undecided = CliRunner().invoke(cli, ["models", *command])
    assert isinstance(undecided.exception, UndecidedError)
    assert undecided.output.count("may decide") == 1, "reasons are said once"
    before = champions.history(fresh, "t")
    tried = CliRunner().invoke(cli, ["models", *command, "--dry-run"])
    assert (tried.exit_code, "refused from" in tried.stdout) == (12, True)
    assert champions.history(fresh, "t") == before
    as_json = CliRunner().invoke(cli, ["models", *command, "--json"])
    assert (as_json.exit_code, json.loads(as_json.stdout)["verdict"]) == (12, "undecided")
    promote(spec(fresh, runs[1]), silent())
    assert said("list").startswith(f"t  {runs[1]}  accuracy ")
    assert f"{runs[0]} is the champion of t again (number 3)" in said("rollback", "t", "--reason", "slow on phones")
    lines = said("list", "t").splitlines()
    assert [line.split()[:2] for line in lines] == [["3", runs[0]], ["2", runs[1]], ["1", runs[0]]]
    assert lines[0].endswith("slow on phones")


def line_of(*runs: str, references: tuple[int, ...] = ()) -> list[Crowned]:
    shared = {"action": "promoted", "weights_sha256": "", "dataset": "d", "fingerprint": "", "time": 1.0, "token": ""}
    numbered = enumerate(runs, start=1)
    return [Crowned(number=each, run=run, reference=each in references, **shared) for each, run in numbered]


def test_the_reference_is_the_last_better_champion_else_the_first_or_a_named_one():
    for references, number in (((), 1), ((2,), 2), ((1, 2), 2), ((3,), 3)):
        assert reference_of(line_of(*"abc", references=references)).number == number
    line = line_of(*"abac", references=(2,))
    assert reference_of(line, "a").number == 3, "at its last promotion"
    with pytest.raises(SettingsError, match=r"promotion\.reference=d is no champion.*: .*a.*b.*c"):
        reference_of(line, "d")
    assert reference_of([]) is None


RUN, RIVAL, LATER = "t-1", "t-0", "t-2"


@pytest.mark.parametrize(
    ("verdict", "rule", "line", "valid"),
    [
        ("promoted", "", (RIVAL, RUN), True),
        ("promoted", "", (RIVAL, RUN, RIVAL), True),  # a rollback is not undone
        ("promoted", "", (RIVAL,), False),
        ("refused", "main", (RIVAL,), True),
        ("refused", "main", (RIVAL, LATER), False),
        ("refused", "main", (), False),
        ("refused", "export", (RIVAL,), False),  # the file may have been written again
        ("undecided", "main", (RIVAL,), False),
    ],
)
def test_a_decision_is_found_while_it_is_valid(tmp_path, verdict, rule, line, valid):
    store, promoted = open_store(tmp_path), verdict == "promoted"
    named = {"run": RUN, "recipe": "t"}
    of = {"root": store.uri, "weights_sha256": "w", "dataset": "sample", "fingerprint": "f", "evaluation_sha256": "e"}
    asked = PromoteSpec(**named, **of)
    check = Check(rule=rule, name="accuracy", refused=verdict == "refused", shown=False, message="worse")
    named |= {"promoted": promoted, "reference": RIVAL, "measure": "top1"}
    decided = {"undecided": verdict == "undecided", "checks": (check,) if rule else (), "exports": ()}
    document = Promotion(weights_sha256="w", champion=RIVAL, known=(), **named, **decided)
    name = f"{asked.folder}/promotion.json"
    store.publish_json(name, document.model_dump(mode="json"))
    doubt = "more trainings would decide" if verdict == "undecided" else ""
    result = PromoteResult(doubt=doubt, headline="decided", promotion_sha256=store.sha256(name), **named)
    complete(store, asked.folder, asked, result, [name])
    for run in line:
        champions.crown(
            store, "t", champions.Candidate(run, "w", "sample", "f"), champions.champion(store, "t"), "promoted"
        )
    assert (find(asked, silent()) is not None) == valid
    assert find(asked.model_copy(update={"again": True}), silent()) is None
