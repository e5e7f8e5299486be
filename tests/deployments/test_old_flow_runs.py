"""What a server of ``podline up`` deletes by itself."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect.client.schemas.actions import LogCreate
from prefect.states import Completed
from prefect_servers import prefect_server_in, wait_until

from podline.settings.machine import server_environment


@pytest.mark.slow
def test_flow_runs_go_90_days_after_their_end_with_logs_and_artifacts(tmp_path: Path) -> None:
    vacuum = "PREFECT_SERVER_SERVICES_DB_VACUUM_"
    ours = {name: value for name, value in server_environment(tmp_path, "", "", {}).items() if name.startswith(vacuum)}
    often = {f"{vacuum}LOOP_SECONDS": "1", f"{vacuum}ORPHAN_CLEANUP_LOOP_SECONDS": "1"}
    with prefect_server_in(tmp_path, **ours, **often) as server, server.client() as client:
        flow = client.create_flow_from_name("night")
        for name, days in (("old", 91), ("young", 89)):
            run = {"flow_id": str(flow), "name": name, "state": {"type": "PENDING"}}
            made = client.request("POST", "/flow_runs/", json=run).json()["id"]
            client.set_flow_run_state(made, Completed(), force=True)
            said = LogCreate(name="night", level=20, message=name, timestamp=datetime.now(UTC), flow_run_id=made)
            client.create_logs([said])
            report = {"key": name, "type": "markdown", "data": name, "flow_run_id": made}
            client.request("POST", "/artifacts/", json=report)
            # The server itself sets the time of an end.
            ended = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S.%f")
            with sqlite3.connect(server.home / "prefect.db", timeout=60) as database:
                database.execute("UPDATE flow_run SET end_time = ? WHERE id = ?", (ended, made))

        def left() -> list[list[str]]:
            runs = [run.name for run in client.read_flow_runs()]
            return [
                runs,
                [log.message for log in client.read_logs()],
                [str(each.key) for each in client.read_artifacts()],
            ]

        wait_until(lambda: left() == [["young"]] * 3, seconds=120, every=1)
