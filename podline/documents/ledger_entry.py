"""An entry of the ledger: code, settings, data, environment, duration and result of one run."""

from __future__ import annotations

import operator
from typing import Literal

from pydantic import Field

from podline.documents.metric import Metric
from podline.documents.promotion import Verdict
from podline.frozen import Frozen, JsonObject

State = Literal["finished", "failed", "cancelled"]
Started = Literal["schedule", "event", "hand", "retry"]
"""What began a run."""


class CodeVersion(Frozen):
    """The code that ran.

    Attributes:
        version: of the package.
        commit: git's; empty where it is not known.
        changes: files that differ from the commit → the beginning of the sha256 of what they hold, empty for one that
            is gone; at most :data:`podline.ledger.provenance.MOST_CHANGES` of them.
        more_changes: how many more there are.
        sources: the sha256 of all source files of a package whose commit is not known; empty where it is.
    """

    version: str
    commit: str = ""
    changes: dict[str, str] = Field(default_factory=dict)
    more_changes: int = 0
    sources: str = ""

    @property
    def clean(self) -> bool | None:
        """Whether the code is the commit's; None where no commit is known."""
        return None if not self.commit else not self.changes


class Split(Frozen):
    """A split of the data set: its records, and a hash of them in their order, by which the same ones are known."""

    records: int
    sha256: str


class ChangedRecords(Frozen):
    """Records of a split that came, went or changed: how many, and the first of them by name."""

    count: int = 0
    records: tuple[str, ...] = ()


class SplitChange(Frozen):
    """The changes of a split.

    Attributes:
        added: records whose image was not there.
        removed: records whose image is no longer there.
        relabelled: records whose image is the same and whose label, or people, are not.
    """

    added: ChangedRecords = ChangedRecords()
    removed: ChangedRecords = ChangedRecords()
    relabelled: ChangedRecords = ChangedRecords()


class DataChange(Frozen):
    """The change of the data since the last run of the same recipe in the same store.

    Attributes:
        before: that run's entry.
        fingerprint: of its data.
        splits: those that are not the same.
        unknown: why it cannot be said, if it cannot.
    """

    before: str
    fingerprint: str
    splits: dict[str, SplitChange] = Field(default_factory=dict)
    unknown: str = ""


class Data(Frozen):
    """The data set.

    Attributes:
        dataset: its name.
        fingerprint: of all that its bytes depend on.
        converter: the settings that they depend on.
        source: the sha256 of the source's files, by their names, sizes and contents.
        splits: by name.
        classes: how many there are.
        quarantined: records of the source that were left out.
        change: since the run before; None for the first one.
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
    """The environment of the run.

    Attributes:
        python: version and implementation.
        platform: the operating system, its version, the processor's kind.
        machine: the host's name.
        cores: that the process may use.
        memory: bytes.
        strategy: where models were asked to run.
        devices: where training ran; empty if it did not come to that.
        packages: name → version, of all that is installed beside Podline.
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
    """A stage: seconds that it took this time and when its work was done, and whether that was earlier."""

    seconds: float
    seconds_when_made: float
    reused: bool


class Waiting(Frozen):
    """Seconds that the run did nothing but wait.

    Attributes:
        start: from the moment at which it was due to its beginning: for a worker, or for a run of the same deployment.
        turn: for other runs that had the TPU.
        tpu: for the TPU to be ready and healthy.
        repairs: for the TPU to be restarted or made again.
        retries: between an attempt of a stage and the next.
    """

    start: float = 0.0
    turn: float = 0.0
    tpu: float = 0.0
    repairs: float = 0.0
    retries: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.start + self.turn + self.tpu + self.repairs + self.retries


class RetrySummary(Frozen):
    """A stage that failed and was tried again: the error, in a line, and the seconds of delay before."""

    stage: str
    error: str
    cause: str
    delay: float


class AnnealingSummary(Frozen):
    """The result of the schedule's annealing.

    Attributes:
        of: what the energy is, the loss or the error.
        decisions: how many there were.
        rejected: how many of them went back.
        final: energy of the state that was accepted last.
        lowest: of all that were judged.
    """

    of: str
    decisions: int
    rejected: int
    final: float
    lowest: float


class Load(Frozen):
    """The use of the processor while a training ran, in cores, on average.

    Attributes:
        cores: of the machine.
        own: used by the training.
        others: used by other processes.
        stolen: taken by the hypervisor, for other virtual machines.
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
        pflop: 10¹⁵ floating-point operations, see :func:`podline.documents.model_description.training_pflop`; 0 is not
            known.
        ending: in words, if it ended early or with an earlier state.
        load: since the last break; None if it is not known.
        annealing: None for a schedule without.
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
    """The quality of the model; every figure is that of ``evaluation.json``.

    Attributes:
        split: what it was judged on.
        measure: which of the metrics counts: ``top1`` or ``ap``.
        examples: how many were judged.
        metrics: with 95 % intervals.
        untrained: the metric that counts, of the network before training.
        parts: the guards: of each class its accuracy, of each joint the share that is close, with Wilson's interval.
        parameters: of the model.
        model_bytes: of its weights in a file.
        weights_sha256: the model's identity.
        evaluation_sha256: of ``evaluation.json``.
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
        """The metric that counts."""
        return self.metrics[self.measure]


class Origin(Frozen):
    """The inputs of a model: everything that its result depends on.

    Attributes:
        recipe: the recipe's name.
        settings: every setting that the result depends on, by group: ``recipe``, and ``machine`` with those that tell
            where and how.
        overridden: dotted path → value, of the recipe's settings that are not as the recipe is written.
        seeds: of the recipe (weights, order, augmentation, dropout) and of the data (order in shards).
        code: what ran.
        data: what it was trained and judged on; None if it did not come to that.
        environment: what it ran on.
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
        verdict: in a word.
        reason: in a line: what refuses the model or leaves it undecided; empty if it became the champion.
        reference: the run that it was compared with; empty for the first champion.
        margins: in words.
        floor: the metric that counts, of the reference, less its margin; None if nothing was compared.
        compared: where the data of the two differ, which test examples decided, and the figures on new ones.
    """

    verdict: Verdict
    reason: str = ""
    reference: str = ""
    margins: str = ""
    floor: float | None = None
    compared: str = Field(default="", exclude_if=lambda compared: not compared)


class Entry(Origin):
    """A finished run. If its training was re-used, the inputs are those of that training.

    Attributes:
        name: the entry's own; see :func:`podline.ledger.ledger.name_of`.
        state: how it ended.
        began: Unix time.
        ended: Unix time.
        way: what was started: a ``flow`` (a deployment's, or that of ``podline run``), or stages by ``commands``.
        flow_run: Prefect's id of the flow run; empty for commands.
        attempt: of the flow run, from 1.
        started: what began this attempt: a ``schedule``, an ``event``, a person (``hand``), or a person's ``retry`` of
            a flow run that had ended. A run that crashed and begins again is begun by what began it first.
        schedule: the deployment whose schedule or automation made the flow run; empty if none did.
        run: its name, and that of its folder under ``runs``; empty if it did not come to training.
        stages: those that came to an end, in order.
        waiting: for what, and how long.
        retries: in order.
        spent: class of time → seconds, from the moment at which the run was due to its end: what was work and what was
            loss; see :data:`podline.ledger.time_spent.CLASSES`.
        training: None if it did not come to an end.
        outcome: None if the model was not judged.
        promotion: None if none was asked for.
        report: the page's name in the store; empty if there is none.
        error: the class of the error that ended it; empty for a finished run.
        cause: the error in a line.
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
    waiting: Waiting = Waiting()
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
        """Return whether a schedule or an event began it."""
        return self.started in ("schedule", "event")

    @property
    def seconds(self) -> float:
        """From beginning to end."""
        return self.ended - self.began
