"""Specs and results of the pipeline's stages."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer, model_validator

from podline.base.errors import SanityError
from podline.base.figures import count, duration, percent, pflop, rate, size
from podline.base.frozen import Frozen, JsonObject, is_object, omitted
from podline.base.plurals import plural
from podline.documents.ledger_entry import Load
from podline.documents.metric import Metric
from podline.documents.promotion import Verdict
from podline.recipes.datasets import ConverterSettings, DatasetName, settings_of
from podline.recipes.measures import metric_text, shown
from podline.recipes.official import OfficialCheck
from podline.recipes.promotion_settings import PromotionSettings
from podline.settings.engines import LOCAL, EngineName
from podline.settings.strategies import StrategyName
from podline.stages.base import JUDGED, MANIFEST_DIGEST, DatasetSpec, Result, RunSpec, Spec, TrainableSpec, Where
from podline.stages.options import LEFT_OUT

# Part of an evaluation's identity: raise it when an evaluation writes further files or figures.
EVALUATION_VERSION = 3
# Part of a decision's identity: raise it when the same figures may lead to another decision. Models that were promoted
# under an earlier number are then judged again, even after a rollback; so changed margins alone do not raise it.
PROMOTION_VERSION = 2
# File in a run's folder: the TrainSpec of its training.
SPEC = "spec.json"
# File in a run's folder: the trained weights, whose checksum is the model's identity.
WEIGHTS = "model/weights.npz"
# File in a run's folder: the trained model's architecture as JSON for Keras.
ARCHITECTURE = "model/architecture.json"


class ConvertSpec(Spec["ConvertResult"]):
    """Converts the raw data in ``source`` to sharded TFRecords under ``datasets/<dataset>/<fingerprint>``.

    In JSON, the data set's own settings, such as ``side`` of ``coco``, are on the same level as the other fields.
    """

    not_hashed = frozenset({"root", "source", "engine", "workers", "beam_options", "allow_left_out"})

    dataset: DatasetName
    source: str = Field(description="a folder, or a file such as an archive or a table; also in gs://")
    seed: int = Field(default=0, ge=0, description="the seed of the order of examples in shards")
    shard_bytes: int = Field(default=100_000_000, ge=1_000, description="largest size of a shard, approximately")
    min_shards: int = Field(default=10, ge=1, description="least number of shards of a split, if each reaches 1 MB")
    settings: SerializeAsAny[ConverterSettings] = Field(
        default=ConverterSettings(), description="the data set's own settings"
    )
    allow_left_out: float = Field(
        default=LEFT_OUT,
        ge=0,
        le=1,
        description="the largest share of a source's records, or people, that may be left out without an error",
    )
    engine: EngineName = Field(default=LOCAL, description="the engine; see podline.settings.engines")
    workers: int = Field(default=1, ge=1, description="number of worker processes of the local engine")
    beam_options: tuple[str, ...] = Field(default=(), description="further options of Beam")

    @model_validator(mode="before")
    @classmethod
    def _settings_apart(cls, given: Any) -> Any:
        if not is_object(given):
            return given
        shared = {name: value for name, value in given.items() if name in cls.model_fields}
        own = {name: value for name, value in given.items() if name not in shared}
        settings: ConverterSettings = shared.pop("settings", ConverterSettings())
        return {**shared, "settings": settings_of(str(given.get("dataset")), {**settings.model_dump(), **own})}

    @model_serializer(mode="wrap")
    def _settings_beside(self, dump: SerializerFunctionWrapHandler) -> JsonObject:
        document = dump(self)
        return document | document.pop("settings", {})


class ConvertResult(Result):
    """A converted data set; ``folder`` is its name in the store."""

    dataset: DatasetName
    fingerprint: str
    folder: str
    read: int
    written: int
    quarantined: int
    splits: dict[str, int]
    bytes: int
    shards_written: int
    shards_reused: int
    official: OfficialCheck | None = omitted(
        None, description="comparison of the raw files with the published ones; None for unpublished data"
    )
    contradicting: dict[str, int] = omitted(
        {}, description="split → number of records whose image has another label in another record of the split"
    )

    def lines(self, where: Where = str, /) -> list[str]:
        """Return the data set's size and path, and the number of quarantined records."""
        splits = ", ".join(f"{count(records)} {name}" for name, records in self.splits.items())
        lines = [f"{self.dataset}: {splits} examples, {size(self.bytes)}", where(self.folder)]
        if self.quarantined:
            lines.append(f"quarantined: {count(self.quarantined)} of {plural(self.read, 'record')}; see the manifest")
        return lines


class ValidateSpec(DatasetSpec["ValidateResult"]):
    """Verifies a converted data set's files against its manifest."""

    manifest_sha256: str
    deep: bool = omitted(
        False, description="decode every record, recompute the manifest's figures, and search for images in two splits"
    )

    @property
    def folder(self) -> str:
        """Return the folder of the data set."""
        return self.dataset_folder


class ValidateResult(Result):
    """The result of a successful validation: the data set equals its manifest."""

    records: int
    shards: int
    duplicates_within: int | None = Field(
        default=None,
        description="number of records whose image occurs more than once in their split; None if not searched",
    )

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the numbers of records and shards, and the number of records with a repeated image."""
        twice = plural(self.duplicates_within or 0, "record")
        repeated = f"; {twice} with an image that occurs again in the same split" if self.duplicates_within else ""
        return [f"equal to the manifest: {plural(self.records, 'record')} in {plural(self.shards, 'shard')}{repeated}"]


class Pruning(Frozen):
    """The limits of a trial in a search. A trial ends if its best value after k evaluations is above limit k.

    Attributes:
        metric: the metric to compare with the limits; lower is better.
        limits: the limits for the first evaluation, the second, …; None for no limit.
    """

    metric: Literal["loss", "error"]
    limits: tuple[float | None, ...] = ()


class TrainSpec(TrainableSpec["TrainResult"]):
    """Trains a recipe on a data set."""

    not_hashed = TrainableSpec.not_hashed | {"pruning"}

    pruning: Pruning | None = omitted(None, description="limits of a search's trial")
    preflight: bool = Field(default=True, description="rehearse step, evaluation and checkpoint before the training")

    @property
    def run(self) -> str:
        """Return the run's name: the recipe and a hash of everything that the result depends on."""
        return f"{self.recipe.name}-{self.digest()[:12]}"

    @property
    def folder(self) -> str:
        """Return the run's folder in the store."""
        return f"runs/{self.run}"


class TrainResult(Result):
    """A trained model; later stages identify it by ``weights_sha256``."""

    run: str
    folder: str
    steps: int
    epochs: float
    examples: int
    parameters: int
    weights_sha256: str
    loss: float
    ending: str = omitted(
        "", description="a sentence about an early end, or about the earlier step whose state was restored; else empty"
    )
    steps_before: int = Field(default=0, description="number of steps of the earlier runs that this run continues")
    epochs_before: int = Field(
        default=0,
        description="number of epochs of the earlier runs that this run continues; an incomplete epoch counts as one",
    )
    examples_per_second: float
    pflop: float = Field(default=0.0, description="10¹⁵ floating-point operations of the training; 0: unknown")
    waiting_for_input: float = Field(description="share of the training time, 0…1")
    traces: int = Field(
        default=0, description="how often TensorFlow traced the step since the last interruption; 0: unknown"
    )
    load: Load | None = Field(default=None, description="load of the CPU since the last interruption; None: unknown")
    resumed_from: tuple[int, ...] = Field(default=(), description="steps at which the run resumed")
    devices: str = "cpu"

    def lines(self, where: Where = str, /) -> list[str]:
        """Return the duration, the speed, the ending if it is not the planned one, and the folder of the training."""
        waiting = f"{percent(self.waiting_for_input)} of the time waiting for input"
        return [
            f"{self.run}: {plural(self.steps, 'step')} in {duration(self.seconds)}, loss {self.loss:.3f}",
            f"{rate(self.examples_per_second)} examples/s, {waiting}; {pflop(self.pflop)}",
            *filter(None, (self.ending,)),
            where(self.folder),
        ]


class EvaluateSpec(RunSpec["EvaluateResult"]):
    """Evaluates a trained model on a split, every example once."""

    weights_sha256: str
    manifest_digest: str = MANIFEST_DIGEST
    split: str = JUDGED
    batch_size: int = Field(default=500, ge=1)
    evaluation_version: int = EVALUATION_VERSION
    judging: JsonObject = omitted(
        {}, description="settings of the recipe's section `task` for evaluations only, such as a classifier's views"
    )
    measures: dict[str, str] = omitted({}, description="installed measures → a digest of their code")
    strategy: StrategyName = "auto"

    not_hashed = frozenset({"root", "batch_size", "strategy"})

    @property
    def model_strategy(self) -> StrategyName | None:
        """Return the strategy."""
        return self.strategy


class EvaluateResult(Result):
    """The metrics of an evaluation; ``evaluation.json`` has the tables and all other figures."""

    run: str
    dataset: DatasetName = Field(description="the data set of the examples")
    examples: int
    metrics: dict[str, Metric]
    measure: str = Field(
        default="top1",
        description="the name of the main metric, such as `top1` of a classifier or `ap` of a pose network",
    )
    untrained: float = Field(description="the main metric of the network with random weights")
    milliseconds: float = Field(
        default=0.0, description="duration of a batch of one image, on the device of the evaluation"
    )
    evaluation_sha256: str
    notes: tuple[str, ...] = omitted((), description="further figures of the kind of task, one line each")
    failure: str = omitted("", description="why the model fails its check, with remedies; empty if it passes")

    def require_sane(self) -> None:
        """Raise an error if the model fails its check.

        Raises:
            SanityError: the model fails its check.
        """
        if self.failure:
            raise SanityError(self.failure)

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return each metric, and the main metric of the untrained model."""
        untrained = Metric(value=self.untrained, low=self.untrained, high=self.untrained)
        first = f"{plural(self.examples, 'example')}, untrained {metric_text(self.measure, untrained)}"
        figures = [f"{each.label} {metric_text(each.name, self.metrics[each.name])}" for each in shown(self.metrics)]
        return [f"{self.run}: {first}", *figures, *self.notes]


class PromoteSpec(RunSpec["PromoteResult"]):
    """Decides whether an evaluated model becomes the champion of its recipe."""

    recipe: str = Field(description="the recipe whose champion the model may become")
    weights_sha256: str = Field(description="sha256 of the model's weights, which identifies the model")
    evaluation_sha256: str = Field(description="the checksum of the model's evaluation")
    rules: PromotionSettings = Field(default=PromotionSettings(), description="the rules of the recipe")
    code: dict[str, str] = omitted({}, description="installed rules → a digest of their code")
    anyway: bool = Field(default=False, description="promote even if the rules refuse")
    reason: str = Field(default="", description="a comment for the history")
    again: bool = Field(default=False, description="decide again even if there is a decision")
    dry_run: bool = Field(default=False, description="decide without promoting; nothing is written")
    promotion_version: int = PROMOTION_VERSION

    not_hashed = frozenset({"root", "again", "dry_run", "rules.seeds", "rules.seed_minutes"})


class PromoteResult(Result):
    """The decision about a promotion; ``promotion.json`` has the details."""

    run: str = Field(description="the run of the model")
    recipe: str = Field(description="the recipe whose champion the model may become")
    promoted: bool = Field(description="whether the model became the champion")
    reference: str = Field(description="the run that it was compared with; empty if there was none")
    measure: str = Field(description="the main metric")
    refusals: tuple[str, ...] = Field(default=(), description="the reasons for refusal, a line each")
    doubt: str = Field(
        default="",
        description="the undecided tests and the action that would decide them, in one line; empty if decided",
    )
    more_trainings: int = Field(
        default=0,
        description="number of further trainings of the reference's recipe, with other seeds, that would end the "
        "verdict 'undecided' at the same change; 0 if no number would",
    )
    thresholds: str = Field(
        default="",
        description="text with the thresholds of the main metric, and of the class or joint with the widest ones; "
        "empty without a comparison",
    )
    notes: tuple[str, ...] = Field(
        default=(), description="the main figure, warnings, the compared examples and the thresholds, a line each"
    )
    floor: float | None = Field(
        default=None,
        description="the value of the main metric at which the model would be refused; None without a comparison",
    )
    compared: str = Field(
        default="", description="the compared examples, in one line, if the two models' data differ; else empty"
    )
    headline: str = Field(description="the decision in one line")
    promotion_sha256: str = Field(description="the checksum of `promotion.json`")

    @property
    def verdict(self) -> Verdict:
        """Return the decision in one word."""
        return "promoted" if self.promoted else "undecided" if self.doubt else "refused"

    @property
    def reason(self) -> str:
        """Return the doubt or the first refusal, even an overruled one, in one line; empty without either."""
        more = f"; {len(self.refusals) - 1} more in the report" if len(self.refusals) > 1 else ""
        return self.doubt or "".join(self.refusals[:1]) + more

    def lines(self, _where: Where = str, /) -> list[str]:
        """Return the decision, the refusals or the doubt, and the notes."""
        return [self.headline, *self.refusals, *filter(None, (self.doubt, *self.notes))]


class ReportSpec(RunSpec["ReportResult"]):
    """Writes a page about one run."""

    evaluation_sha256: str
    promotion_sha256: str = omitted("", description="the checksum of the decision to show")
    command: str = Field(default="", description="the command line that repeats the run")
    sections: dict[str, str] = omitted(
        {}, description="installed stages with a section → sha256 of their completion record"
    )
    installed: dict[str, str] = omitted({}, description="sections of installed packages → digest of their code")

    not_hashed = frozenset({"root", "command"})


class ReportResult(Result, extra="ignore"):
    """The names of the report's files in the store; a further name in results of Podline 1.0 is ignored."""

    html: str
    markdown: str

    def lines(self, where: Where = str, /) -> list[str]:
        """Return the paths of the HTML page and of its Markdown version."""
        return [where(self.html), where(self.markdown)]
