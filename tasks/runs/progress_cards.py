"""Progress cards on a flow run's page: one per stage, in the order of the stages.

The UI sorts a run's artifacts by id, highest first, and a server draws ids at random. So a run first creates all cards
with one key, and assigns them to stages in the order of their ids. A retry finds them again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.runtime import flow_run

from podline.stopwatch import measured
from podline.tasks.runs.names import key_of

# Flow run → stage → card, in this process.
_cards: dict[str, dict[str, UUID]] = {}


@measured("between")
def deal_cards(recipe: str, stages: Sequence[str]) -> None:
    """Create the cards of the current flow run, or find those of its earlier start.

    Args:
        recipe: the run's recipe; see :func:`podline.tasks.runs.names.key_of`.
        stages: the stages in order.
    """
    key, run = key_of(recipe, "progress"), str(flow_run.id)
    ours = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[UUID(run)]), key=ArtifactFilterKey(any_=[key]))
    # A run can work without its cards.
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        found = [artifact.id for artifact in client.read_artifacts(artifact_filter=ours)]
        missing = len(stages) - len(found)
        found += [UUID(str(create_progress_artifact(0.0, key))) for _ in range(missing)]
        _cards[run] = dict(zip(stages, sorted(found, reverse=True), strict=False))
        if missing > 0:
            for stage in stages:
                show(stage, 0.0, f"{stage}: not begun")


def card_of(stage: str) -> UUID | None:
    """Return the card of a stage of the current flow run, or None."""
    return _cards.get(str(flow_run.id), {}).get(stage)


def show(stage: str, share: float, words: str) -> None:
    """Update a stage's card, if it has one.

    Args:
        stage: name of the stage.
        share: progress in percent.
        words: text on the card.
    """
    card = card_of(stage)
    if card is not None:
        update_progress_artifact(card, share, words)
