"""An entry of the ledger: code, settings, data, environment, duration and result of one run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from podline.base.frozen import Frozen, JsonObject, omitted
from podline.documents.metric import Metric
from podline.documents.promotion import Verdict

State = Literal["finished", "failed", "cancelled"]
Started = Literal["schedule", "event", "hand", "retry"]
"""Who started a run: a schedule, an event, a person (``hand``), or a person who retried it."""


class CodeVersion(Frozen):
    """The version of the code.

    Attributes:
        version: version of the package.
        commit: git commit; empty if unknown.
        changes: file that differs from the commit → the first digits of its sha256, empty for a deleted file; at most
            :data:`podline.ledger.provenance.MOST_CHANGES` files.
        more_changes: number of further files that differ.
        sources: sha256 of all source files of a package without a known commit; else empty.
        modules: sha256 of the modules that train and evaluate; empty for a run of Podline 1.0.
    """

    version: str
    commit: str = ""
    changes: dict[str, str] = Field(default_factory=dict)
    more_changes: int = 0
    sources: str = ""
    modules: str = omitted("")


class Split(Frozen):
    """A split of the data set: the number of records, and a sha256 that changes with the records or their order."""

    records: int
    sha256: str


class ChangedRecords(Frozen):
    """Added, removed or changed records of a split: the number of records, and the names of the first few."""

    count: int = 0
    records: tuple[str, ...] = ()


class SplitChange(Frozen):
    """The changes of a split.

    Attributes:
        added: records whose image was not in the split.
        removed: records whose image is no longer in the split.
        relabelled: records with the same image but another label, other labels or other annotated people.
    """

    added: ChangedRecords = ChangedRecords()
    removed: ChangedRecords = ChangedRecords()
    relabelled: ChangedRecords = ChangedRecords()


class DataChange(Frozen):
    """The change of the data since the previous run of the same recipe in the store.

    Attributes:
        before: name of the previous run's entry in the ledger.
        fingerprint: fingerprint of the previous run's data.
        splits: name of each changed split → its changes.
        unknown: why the change is unknown; empty if it is known.
    """

    before: str
    fingerprint: str
    splits: dict[str, SplitChange] = Field(default_factory=dict)
    unknown: str = ""


class Data(Frozen):
    """The data set.

    Attributes:
        dataset: name of the data set.
        fingerprint: digest of everything that determines the data set's bytes.
        converter: the settings that determine the data set's bytes.
        source: sha256 of the names, sizes and contents of the source's files.
        splits: the splits by name.
        classes: number of classes; 0 for data without classes.
        quarantined: number of source records that the conversion omitted.
        change: change since the previous run; None for the first run, and before the training.
    """

    dataset: str
    fingerprint: str
    converter: dict[str, int | str] = Field(default_factory=dict)
    source: str = ""
    splits: dict[str, Split] = Field(default_factory=dict)
    classes: int = 0
    quarantined: int = 0
    change: DataChange | None = None


class Environment(Frozen):
    """The environment of a run.

    Attributes:
        python: version and implementation.
        platform: operating system with version, and processor architecture.
        machine: name of the host.
        cores: number of cores that the process may use.
        memory: main memory in bytes.
        strategy: the requested distribution strategy.
        devices: the devices of the training; empty without a training.
        packages: name → version of all installed packages except Podline.
    """

    python: str
    platform: str
    machine: str
    cores: int
    memory: int
    strategy: str = ""
    devices: str = ""
    packages: dict[str, str] = Field(default_factory=dict)


class StageTime(Frozen):
    """The time of a stage.

    Attributes:
        seconds: duration in this run.
        seconds_when_made: duration in the run that did the work: this run or an earlier one.
        reused: whether an earlier run did the work.
    """

    seconds: float
    seconds_when_made: float
    reused: bool


class WaitingTime(Frozen):
    """Seconds that the run spent waiting.

    Attributes:
        start: time from due time to start: waiting for a worker, or for another run of the same deployment.
        turn: time waiting for other runs that used the TPU.
        tpu: time waiting for the TPU to become ready and healthy.
        repairs: time waiting for a restart of the TPU or for a new TPU.
        retries: delays before retries of a stage.
    """

    start: float = 0.0
    turn: float = 0.0
    tpu: float = 0.0
    repairs: float = 0.0
    retries: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all waiting times."""
        return self.start + self.turn + self.tpu + self.repairs + self.retries


class RetrySummary(Frozen):
    """A retry of a failed stage.

    Attributes:
        stage: name of the stage.
        error: class of the error.
        cause: the error in one line.
        delay: seconds between the failure and the retry.
    """

    stage: str
    error: str
    cause: str
    delay: float


class AnnealingSummary(Frozen):
    """The summary of a training with simulated annealing.

    Attributes:
        of: the metric that serves as energy: the loss or the error.
        decisions: number of decisions to accept or reject a state.
        rejected: number of rejected states.
        final: energy of the last accepted state.
        lowest: lowest energy of all states.
    """

    of: str
    decisions: int
    rejected: int
    final: float
    lowest: float


class Load(Frozen):
    """The average use of the CPU during a training, in cores.

    Attributes:
        cores: number of cores of the machine.
        own: cores used by the training.
        others: cores used by other processes.
        stolen: cores used by the hypervisor for other virtual machines.
        throttled: share (0…1) of the scheduling periods in which the control group's CPU quota paused the training.
    """

    cores: int
    own: float
    others: float
    stolen: float
    throttled: float


class Training(Frozen):
    """The figures of training, from :class:`podline.stages.specs.TrainResult`.

    Attributes:
        pflop: floating-point operations in 10¹⁵, see :func:`podline.documents.model_description.training_pflop`; 0 if
            unknown.
        ending: description of an early end or a restored state; empty for a training with neither.
        load: CPU load since the last interruption, or None.
        annealing: summary of annealing; None for other schedules, and without a decision.
    """

    steps: int
    epochs: float
    examples: int
    loss: float
    seconds: float
    examples_per_second: float
    waiting_for_input: float
    pflop: float = 0.0
    ending: str = omitted("")
    traces: int = 0
    load: Load | None = None
    resumed_from: tuple[int, ...] = ()
    annealing: AnnealingSummary | None = None


class Outcome(Frozen):
    """The metrics of the model, copied from ``evaluation.json``.

    Attributes:
        split: the evaluated split.
        measure: name of the main metric, such as ``top1`` or ``ap``.
        examples: number of evaluated examples.
        metrics: metrics with 95 % intervals.
        untrained: the main metric of the network with random weights.
        parts: figures with 95 % intervals: the accuracy of each class, the average precision of each label, or the PCK
            of each joint (share of predictions close to the annotation); empty for other kinds of task.
        parameters: number of parameters of the model.
        model_bytes: size of the weights file.
        weights_sha256: sha256 of the model's weights.
        evaluation_sha256: checksum of ``evaluation.json``.
    """

    split: str
    measure: str
    examples: int
    metrics: dict[str, Metric]
    untrained: float
    parts: dict[str, Metric]
    parameters: int
    model_bytes: int
    weights_sha256: str
    evaluation_sha256: str

    @property
    def main(self) -> Metric:
        """The main metric."""
        return self.metrics[self.measure]


class Origin(Frozen):
    """Everything that determines a trained model.

    Attributes:
        recipe: name of the recipe.
        settings: the settings in two groups: ``recipe``, and ``machine`` (without paths and URLs).
        overridden: dotted path → value of the settings that differ from the recipe of this name.
        seeds: seeds of the recipe (weights, order, augmentation, dropout) and of the data (order in shards).
        code: version of the code.
        data: the data set of training and evaluation, or None.
        environment: environment of the run.
    """

    recipe: str
    settings: JsonObject
    overridden: JsonObject = Field(default_factory=dict)
    seeds: dict[str, int] = Field(default_factory=dict)
    code: CodeVersion
    data: Data | None = None
    environment: Environment


class PromotionSummary(Frozen):
    """The decision about a promotion; ``promotion.json`` has the details.

    Attributes:
        verdict: the decision in one word.
        reason: why the model is refused or undecided, in one line; else empty, unless ``--anyway`` overruled a refusal.
        reference: the run with which the model was compared; empty for the first champion.
        thresholds: the changes of a metric at which a model is promoted or refused, as text; empty if not compared.
        floor: the value of the main metric at which the model would be refused; None without a comparison.
        compared: if the two models have different data: the number of compared test examples, and the metrics on new
            test examples, as text; else empty.
    """

    verdict: Verdict
    reason: str = ""
    reference: str = ""
    thresholds: str = ""
    floor: float | None = None
    compared: str = omitted("")


class Entry(Origin):
    """A run that ended. If it reused a training, ``settings``, ``code`` and ``environment`` are that training's.

    Attributes:
        name: name of the entry; see :func:`podline.ledger.ledger.name_of`.
        state: state at the end.
        began: Unix time of the start.
        ended: Unix time of the end.
        way: ``flow`` for a flow run (of a deployment, or of ``podline run``), ``commands`` for single stages.
        flow_run: Prefect's id of the flow run; empty for commands.
        attempt: attempt of the flow run, from 1.
        started: who started the flow run: a ``schedule``, an ``event``, a person (``hand``), or a person who retried an
            ended flow run (``retry``). A restart after a crash does not change the value.
        schedule: the deployment whose schedule or automation made the flow run, or empty.
        run: name of the run and of its folder under ``runs``; empty without a training.
        stages: name → time of the stages that succeeded, in order.
        waiting: waiting times by cause.
        retries: retries of stages, in order.
        spent: class of time → seconds, from the due time to the end of the run; see
            :data:`podline.ledger.time_spent.CLASSES`.
        training: summary of the training; None if it did not finish.
        outcome: summary of the evaluation; None without an evaluation.
        promotion: summary of the decision about a promotion; None without one.
        report: name of the report in the store, or empty.
        error: class of the error that ended the run; empty for a finished run.
        cause: the error in one line; empty for a finished run.
    """

    name: str
    state: State
    began: float
    ended: float
    way: Literal["flow", "commands"]
    flow_run: str = ""
    attempt: int = 1
    started: Started = "hand"
    schedule: str = ""
    run: str = ""
    stages: dict[str, StageTime] = Field(default_factory=dict)
    waiting: WaitingTime = WaitingTime()
    retries: tuple[RetrySummary, ...] = ()
    spent: dict[str, float] = omitted({})
    training: Training | None = None
    outcome: Outcome | None = None
    promotion: PromotionSummary | None = None
    report: str = ""
    error: str = ""
    cause: str = ""

    @property
    def is_night(self) -> bool:
        """Return whether a schedule or an event, not a person, started the run."""
        return self.started in ("schedule", "event")

    @property
    def seconds(self) -> float:
        """The seconds from start to end."""
        return self.ended - self.began
