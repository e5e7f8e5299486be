"""Shows a flow run's progress in Prefect's UI: in the run's log, and on its card.

The card is a single artifact, since the UI sorts a run's artifacts by random ids: the most important message is at the
top of the card, above the progress of each stage. A retry continues to use the card of the first start.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from podline.base.progress import Event, Listener, terminal, to_logger
from podline.base.stopwatch import measured
from podline.report.escaping import markdown
from podline.stages.progress_words import StagePace, amount, metrics
from podline.tasks.server import key_of

_ARTIFACT_SECONDS = 3.0
# The process itself can write nothing then.
_IF_CRASHED = (
    "If this run is *Crashed*, its process was ended from outside: by a person, or by the kernel as memory ran out. "
    "What it had saved is kept. A run of a deployment restarts by itself once; after that, *Retry* goes on from there."
)
_LAST_SECONDS = 5.0


@dataclass
class _Card:
    """The content of a card.

    Attributes:
        artifact: id of the artifact.
        stages: each stage's progress in percent and as text, in order.
        head: Markdown above the table of stages: first the start time and advice for a crash, in the end the outcome.
        title: text of the card in the list of artifacts; by default the newest text of a stage.
    """

    artifact: UUID
    stages: dict[str, tuple[float, str]] = field(default_factory=dict)
    head: str = ""
    title: str = ""

    def write(self, words: str) -> None:
        rows = (f"| {stage} | {share:.0f} % | {markdown(words)} |" for stage, (share, words) in self.stages.items())
        table = "\n".join(("| stage | done | |", "|---|---:|---|", *rows)) if self.stages else ""
        with get_client(sync_client=True) as client:
            text = "\n\n".join(filter(None, (self.head, table)))
            client.update_artifact(
                self.artifact, ArtifactUpdate(data=text, description=self.title or str(markdown(words)))
            )


# By flow run, in this process.
_cards: dict[str, _Card] = {}


@measured("between")
def open_card(recipe: str, stages: Sequence[str]) -> None:
    """Create the card of the current flow run, or find that of its earlier start.

    Args:
        recipe: the run's recipe; see :func:`podline.tasks.server.key_of`.
        stages: the stages in order.
    """
    # A run can work without its card.
    with contextlib.suppress(Exception):
        begun = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        card = _cards[str(flow_run.id)] = _Card(_artifact(recipe), dict.fromkeys(stages, (0.0, "not begun")))
        card.head = f"Begun {begun}. {_IF_CRASHED}"
        card.write("not begun")


def show(stage: str, share: float, words: str) -> None:
    """Update a stage's row, if the current flow run has a card with this stage.

    Args:
        stage: name of the stage.
        share: progress in percent.
        words: text of the row.
    """
    card = _cards.get(str(flow_run.id))
    if card is not None and stage in card.stages:
        card.stages[stage] = share, words
        card.write(f"{stage}: {words}")


def say_first(recipe: str, text: str, title: str) -> None:
    """Put a text on top of the current flow run's card, which is created if it does not exist.

    Args:
        recipe: the run's recipe.
        text: the text in Markdown.
        title: text of the card in the list of artifacts, in Markdown.
    """
    with contextlib.suppress(Exception):
        card = _cards.get(str(flow_run.id)) or _Card(_artifact(recipe))
        said = card.head if card.title else ""
        card.head, card.title = "\n\n".join(filter(None, (text, said))), title
        card.write(title)


def _artifact(recipe: str) -> UUID:
    key = key_of(recipe, "progress")
    ours = ArtifactFilter.model_validate({"flow_run_id": {"any_": [flow_run.id]}, "key": {"any_": [key]}})
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ours)
    return found[0].id if found else UUID(str(create_markdown_artifact("", key)))


def stage_listener(stage: str, title: str = "") -> Listener:
    """Return a listener that writes to the terminal, the run's log and its card; call it in the task run.

    Args:
        stage: name of the stage.
        title: title of its row on the card, if it differs from the stage.
    """
    listeners = (terminal(), _whatever_the_console_does(to_logger(get_run_logger())), ProgressCard(title or stage))

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


def _whatever_the_console_does(listener: Listener) -> Listener:
    """Wrap a listener so that a broken console does not end the stage.

    Prefect's console is rich's, which raises SystemExit when the worker that reads its output has ended.
    """

    def tell(event: Event) -> None:
        with contextlib.suppress(SystemExit):
            listener(event)

    return tell


class ProgressCard:
    """Shows a stage's progress on its run, at most every few seconds.

    A separate thread writes the card: requests to an unavailable server take more than a minute, while the stage must
    be watched. Outdated values are not written.
    """

    def __init__(self, stage: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stage, self._clock = stage, clock
        self._pace = StagePace(clock)
        self._wanted_at, self._share = float("-inf"), 0.0
        self._wanted: tuple[float, str] | None = None
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Update the card by an event."""
        if event["event"] == "result" and self._share < 100.0:
            end = "reused after verification" if event["result"].get("reused") else "done"
            self._want(100.0, end).join(_LAST_SECONDS)
        if event["event"] == "waiting":
            self._want(self._share, event["message"])
        if event["event"] != "progress" or not event["total"]:
            return
        share = min(100.0, 100.0 * event["done"] / event["total"])
        left = self._pace.left(event)
        if share < 100.0 and self._clock() - self._wanted_at < _ARTIFACT_SECONDS:
            return
        self._wanted_at, self._share = self._clock(), share
        parts = (amount(event), metrics(event["metrics"], ", "), left, event.get("note", ""))
        writer = self._want(share, ", ".join(part for part in parts if part))
        if share == 100.0:
            writer.join(_LAST_SECONDS)

    def _want(self, share: float, description: str) -> threading.Thread:
        """Pass the newest values to the writing thread, or start one."""
        with self._lock:
            self._wanted = share, description
            if self._writer is None:
                # The thread's context determines the run of the card.
                work = contextvars.copy_context().run
                self._writer = threading.Thread(target=work, args=(self._write,), name="progress", daemon=True)
                self._writer.start()
            return self._writer

    def _write(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._writer = None
                    return
            # An unavailable server must not fail the stage.
            with contextlib.suppress(Exception):
                show(self._stage, *wanted)
