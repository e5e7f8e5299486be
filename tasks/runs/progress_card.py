"""The card of a flow run among its artifacts: what came of it or what to do, and the progress of each stage.

It is one artifact, since the UI sorts a run's artifacts by ids that the server draws at random: what a run has to say
first stands on top of the card. A retry finds the card again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.runtime import flow_run

from podline.reporting.escaping import markdown
from podline.stopwatch import measured
from podline.tasks.runs.names import key_of


@dataclass
class _Card:
    """The content of a card.

    Attributes:
        artifact: id of the artifact.
        stages: each stage's share in percent and its words, in order.
        head: Markdown above the table of stages.
        title: text of the card in the list of artifacts; by default the newest words of a stage.
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
        recipe: the run's recipe; see :func:`podline.tasks.runs.names.key_of`.
        stages: the stages in order.
    """
    # A run can work without its card.
    with contextlib.suppress(Exception):
        card = _cards[str(flow_run.id)] = _Card(_artifact(recipe), dict.fromkeys(stages, (0.0, "not begun")))
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
        card.head, card.title = "\n\n".join(filter(None, (text, card.head))), title
        card.write(title)


def _artifact(recipe: str) -> UUID:
    key = key_of(recipe, "progress")
    run = ArtifactFilterFlowRunId(any_=[UUID(flow_run.id)])
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(flow_run_id=run, key=ArtifactFilterKey(any_=[key]))
        )
    return found[0].id if found else UUID(str(create_markdown_artifact("", key)))
