"""`podline tpu` against the stand-in: what it prints, what it does, and the exit codes of what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.rpc import code_pb2
from standin.bench import Bench, bench, set_environment
from standin.timeline import EXPIRED_MESSAGE, Outage, Script, life

from podline import cli
from podline.tpu.clock import SystemClock


def call(it: Bench, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """A command line whose settings are those of a stand-in, on the stand-in's clock; the exit code."""
    set_environment(monkeypatch, it.settings.api.endpoint, FOLDER=it.settings.folder)
    monkeypatch.setattr(SystemClock, "now", lambda _self: it.clock.now())
    monkeypatch.setattr(SystemClock, "sleep", lambda _self, seconds: it.clock.sleep(seconds))
    with pytest.raises(SystemExit) as ended:
        cli.main(["tpu", *arguments])
    return int(ended.value.code or 0)


def test_status_shows_a_node_and_touches_nothing_and_recover_restarts_what_does_not_get_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with bench(tmp_path, Script(life=life("READY/TIMEOUT"))) as it:
        assert call(it, monkeypatch, "status") == 0
        assert it.cloud.calls == []
        assert "the gate would  wait: its runtime is not healthy" in capsys.readouterr().out
        assert call(it, monkeypatch, "status", "--policy") == 0
        shown = capsys.readouterr().out
        for line in ("tpu.limits.patience = 60", "tpu.idle_stop = 60 (minutes)", "tpu.patrol = report"):
            assert f"{line}\n" in shown
        assert call(it, monkeypatch, "recover") == 0
        assert it.cloud.calls == ["stop", "start"]
    assert "node night may be used" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "command", "code", "words"),
    [
        (Script(outages=(Outage(0, 1e9, code_pb2.UNAUTHENTICATED, EXPIRED_MESSAGE),)), "status", 8, "log in again"),
        (Script(life=life("HIDDEN")), "recover", 10, "it is hidden"),
        (Script(outages=(Outage(0, 1e9),)), "status", 75, "unavailable"),
    ],
)
def test_what_goes_wrong_is_one_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    script: Script,
    command: str,
    code: int,
    words: str,
) -> None:
    with bench(tmp_path, script) as it:
        assert call(it, monkeypatch, command) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("podline: error: ")
    assert words in line
