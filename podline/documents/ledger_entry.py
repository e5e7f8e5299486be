"""An entry of the ledger: code, settings, data, environment, duration and result of one run."""

from __future__ import annotations

import operator
from typing import Literal

from pydantic import Field

from podline.base.frozen import Frozen, JsonObject
from podline.documents.metric import Metric
from podline.documents.promotion import Verdict

State = Literal["finished", "failed", "cancelled"]
Started = Literal["schedule", "event", "hand", "retry"]
"""What began a run."""


class CodeVersion(Frozen):
    """The version of the code.

    Attributes:
        version: version of the package.
        commit: git's commit; empty if unknown.
        changes: files that differ from the commit → the start of their sha256, empty for a deleted file; at most
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
    modules: str = Field(default="", exclude_if=operator.not_)


class Split(Frozen):
    """A split of the data set: its number of records, and a hash of the ordered records for comparisons."""

    records: int
    sha256: str


class ChangedRecords(Frozen):
    """Added, removed or changed records of a split: their number, and the names of the first ones."""

    count: int = 0
    records: tuple[str, ...] = ()


class SplitChange(Frozen):
    """The changes of a split.

    Attributes:
        added: records with an image that is new.
        removed: records with an image that is gone.
        relabelled: records with the same image, but another label or other people.
    """

    added: ChangedRecords = ChangedRecords()
    removed: ChangedRecords = ChangedRecords()
    relabelled: ChangedRecords = ChangedRecords()


class DataChange(Frozen):
    """The change of the data since the previous run of the same recipe in the store.

    Attributes:
        before: entry of the previous run.
        fingerprint: fingerprint of its data.
        splits: the splits that changed.
        unknown: reason if the change is unknown.
    """

    before: str
    fingerprint: str
    splits: dict[str, SplitChange] = Field(default_factory=dict)
    unknown: str = ""


class Data(Frozen):
    """The data set.

    Attributes:
        dataset: its name.
        fingerprint: digest of everything that its bytes depend on.
        converter: the settings that its bytes depend on.
        source: sha256 of the names, sizes and contents of the source's files.
        splits: the splits by name.
        classes: number of classes.
        quarantined: number of records of the source that were left out.
        change: change since the previous run; None for the first run.
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
        memory: memory in bytes.
        strategy: the requested strategy.
        devices: the devices of the training; empty without a training.
        packages: name → version of all other installed packages.
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
    """A stage's seconds in this run, the time of its work, and whether an earlier run did the work."""

    seconds: float
    seconds_when_made: float
    reused: bool


class WaitingTime(Frozen):
    """Seconds that the run spent waiting.

    Attributes:
        start: from the due time to the start: waiting for a worker, or for a run of the same deployment.
        turn: waiting for other runs that used the TPU.
        tpu: waiting for the TPU to become ready and healthy.
        repairs: waiting for a restart or a new TPU.
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
    """A retry of a failed stage: the error in one line, and the delay before it in seconds."""

    stage: str
    error: str
    cause: str
    delay: float


class AnnealingSummary(Frozen):
    """The summary of the schedule's annealing.

    Attributes:
        of: the metric that serves as energy, the loss or the error.
        decisions: number of decisions.
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
        own: used by the training.
        others: used by other processes.
        stolen: used by the hypervisor for other virtual machines.
        throttled: share of the periods, 0…1, in which the quota of the control group stopped the training.
    """

    cores: int
    own: float
    others: float
    stolen: float
    throttled: float


class Training(Frozen):
    """The figures of training, from :class:`podline.stages.specs.TrainResult`.

    Attributes:
        pflop: 10¹⁵ floating-point operations, see :func:`podline.documents.model_description.training_pflop`; 0 means
            unknown.
        ending: description of an early end or a restored state.
        load: CPU load since the last interruption, or None.
        annealing: summary of annealing; None for other schedules.
    """

    steps: int
    epochs: float
    examples: int
    loss: float
    seconds: float
    examples_per_second: float
    waiting_for_input: float
    pflop: float = 0.0
    ending: str = Field(default="", exclude_if=operator.not_)
    traces: int = 0
    load: Load | None = None
    resumed_from: tuple[int, ...] = ()
    annealing: AnnealingSummary | None = None


class Outcome(Frozen):
    """The quality of the model; every figure equals that in ``evaluation.json``.

    Attributes:
        split: the evaluated split.
        measure: name of the main metric: ``top1`` or ``ap``.
        examples: number of evaluated examples.
        metrics: metrics with 95 % intervals.
        untrained: the main metric of the network with random weights.
        parts: the accuracy of each class, or the share of close places of each joint, with Wilson's interval.
        parameters: number of parameters of the model.
        model_bytes: size of the file with its weights.
        weights_sha256: the model's identity.
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
    """The inputs of a model: everything that determines its result.

    Attributes:
        recipe: the recipe's name.
        settings: all settings that affect the result, by group: ``recipe``, and ``machine`` for place and manner.
        overridden: dotted path → value of the settings that differ from the named recipe.
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
        reason: what refuses the model or leaves it undecided, in one line; empty for a champion.
        reference: the run that it was compared with; empty for the first champion.
        thresholds: the changes from which a figure is promoted and refused, as text.
        floor: the main metric from which the model would be refused; None without a comparison.
        compared: if the data of the two models differ: the compared test examples, and the figures on new ones.
    """

    verdict: Verdict
    reason: str = ""
    reference: str = ""
    thresholds: str = ""
    floor: float | None = None
    compared: str = Field(default="", exclude_if=lambda compared: not compared)


class Entry(Origin):
    """A run that ended. If it reused a training, the inputs are those of that training.

    Attributes:
        name: name of the entry; see :func:`podline.ledger.ledger.name_of`.
        state: state at the end.
        began: Unix time.
        ended: Unix time.
        way: what was started: a ``flow`` (of a deployment, or of ``podline run``), or stages by ``commands``.
        flow_run: Prefect's id of the flow run; empty for commands.
        attempt: attempt of the flow run, from 1.
        started: what began the flow run: a ``schedule``, an ``event``, a person (``hand``), or a person's ``retry`` of
            a flow run that had ended. A restart after a crash keeps the original value.
        schedule: the deployment whose schedule or automation made the flow run, or empty.
        run: name of the run and of its folder under ``runs``; empty without a training.
        stages: the stages that ended, in order.
        waiting: waiting times by cause.
        retries: retries in order.
        spent: class of time → seconds, from the due time to the end of the run; see
            :data:`podline.ledger.time_spent.CLASSES`.
        training: summary of the training; None if it did not finish.
        outcome: summary of the evaluation; None if there was none.
        promotion: summary of the decision; None if none was asked for.
        report: name of the report in the store, or empty.
        error: class of the error that ended the run; empty for a finished run.
        cause: the error in one line.
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
    spent: dict[str, float] = Field(default_factory=dict, exclude_if=operator.not_)
    training: Training | None = None
    outcome: Outcome | None = None
    promotion: PromotionSummary | None = None
    report: str = ""
    error: str = ""
    cause: str = Field(default="", description="one line")

    @property
    def is_night(self) -> bool:
        """Return whether a schedule or an event began the run."""
        return self.started in ("schedule", "event")

    @property
    def seconds(self) -> float:
        """The seconds from start to end."""
        return self.ended - self.began
