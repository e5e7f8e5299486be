"""A champion over HTTP, from a real server process, and in other forms; on small runs that were really trained."""

from __future__ import annotations

import base64
import contextlib
import errno
import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import cv2
import httpx
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from small_dataset import FINGERPRINT, drawn, publish_dataset
from trained_runs import trained

from podline.base.errors import ArtifactError, SettingsError, StoreError, StoreUnavailableError
from podline.base.progress import silent
from podline.champions.exporting import export
from podline.champions.exports import lite_model
from podline.champions.promote import promote
from podline.champions.serving import model
from podline.champions.serving.model import Follower, Served, load_served
from podline.champions.serving.server import MAX_BODY, MAX_CONNECTIONS
from podline.cli import cli
from podline.commands.models import _spec as spec_of
from podline.contract.picture_reader import PictureReader
from podline.documents import champions
from podline.documents.champions import Candidate
from podline.kinds.classification.guesses import Guesses
from podline.stages.tools import ExportFormat, ExportSpec
from podline.store.contract import Store
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("few_layers")

TEST = 60
IMAGES = drawn(TEST, 1)["image"]
# The same sums in another order.
TOLERANCE = 1e-5
needs_onnx = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("tf2onnx", "onnxruntime"))), reason="the extra onnx is not installed"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root, train=256, test=TEST)
    return open_store(root)


@pytest.fixture(scope="module")
def runs(store) -> tuple[str, str]:
    """Two runs that were promoted, the second over the first."""
    names = trained(store, 0), trained(store, 1)
    for name in names:
        promote(spec_of(store, name, (), anyway=True, reason=""), silent())
    return names


class Server(NamedTuple):
    """A process of ``podline models serve``, and what it printed at its start."""

    process: subprocess.Popen[str]
    started: dict[str, Any]
    url: str


@contextlib.contextmanager
def serving(store: Store) -> Iterator[Server]:
    command = [sys.executable, "-m", "podline.cli", "models", "serve", "t", "--port", "0", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--root", store.uri], stdout=pipe, stderr=pipe, text=True) as process:
        try:
            text = ""
            while not text.endswith("}\n"):
                line = process.stdout.readline()
                assert line, process.stderr.read()
                text += line
            started = json.loads(text)
            yield Server(process, started, started["url"])
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def server(store, runs) -> Iterator[Server]:
    with serving(store) as running:
        yield running


def predicted(url: str, document: Any) -> Any:
    answer = httpx.post(f"{url}:predict", json=document, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def crowned(store: Store, run: str) -> champions.Crowned:
    """Make a run the champion."""
    candidate = Candidate(run, spec_of(store, run, (), anyway=True, reason="").weights_sha256, "sample", FINGERPRINT)
    return champions.crown(store, "t", candidate, champions.champion(store, "t"), "promoted anyway")


def output(*command: str) -> str:
    """Return what a command prints."""
    return CliRunner().invoke(cli, command, obj={}, catch_exceptions=False).stdout


def wait_for(server: Server, true: Callable[[dict[str, Any]], bool]) -> None:
    """Return when the server's status is so."""
    until = time.monotonic() + 240
    while not true(httpx.get(server.url, timeout=60).json()):
        assert time.monotonic() < until, "the change is not served"
        time.sleep(0.05)


def softmax(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def test_the_answers_are_those_of_the_evaluation(store, runs, server):
    guesses = Guesses.read(store, f"runs/{runs[1]}")
    logits = np.array(predicted(server.url, {"instances": IMAGES.tolist()})["predictions"])
    shares = softmax(logits)
    assert np.array_equal(logits.argmax(1), guesses.predictions)
    assert np.abs(shares.max(1) - guesses.confidences).max() < TOLERANCE
    assert np.abs(shares[np.arange(TEST), guesses.labels] - guesses.label_probabilities).max() < TOLERANCE
    single = [predicted(server.url, {"instances": [image.tolist()]})["predictions"][0] for image in IMAGES[:5]]
    assert np.abs(np.array(single) - logits[:5]).max() < TOLERANCE


def test_requests_and_answers_have_tensorflow_servings_forms(server):
    """As in https://www.tensorflow.org/tfx/serving/api_rest: rows, columns and files, versions, status and metadata."""
    rows = IMAGES[:2].tolist()
    version = server.started["version"]
    plain = predicted(server.url, {"instances": rows})
    files = [{"b64": base64.b64encode(cv2.imencode(".png", image[..., ::-1])[1]).decode()} for image in IMAGES[:2]]
    for instances in (files, [rows[0], files[1]]):
        assert predicted(server.url, {"instances": instances}) == plain
    named = {"signature_name": "serving_default", "instances": [{"images": row} for row in rows]}
    assert predicted(f"{server.url}/versions/{version}", named) == plain
    for column in (rows, {"images": rows}):
        assert predicted(server.url, {"inputs": column})["outputs"] == plain["predictions"]
    for place, refused in ((f"/versions/{version + 7}", 404), ("x", 404), (":predict", 405)):
        answer = httpx.get(server.url + place, timeout=60)
        assert (answer.status_code, list(answer.json())) == (refused, ["error"])
    [status] = httpx.get(server.url, timeout=60).json()["model_version_status"]
    well = {"error_code": "OK", "error_message": ""}
    assert status == {"version": str(version), "state": "AVAILABLE", "status": well}
    metadata = httpx.get(f"{server.url}/metadata", timeout=60).json()
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    [(name, given)] = signature["inputs"].items()
    assert (name, given["dtype"]) == ("images", "DT_UINT8")
    assert [part["size"] for part in given["tensor_shape"]["dim"]] == ["-1", "8", "8", "3"]
    classes, shares = metadata["classes"], softmax(np.array(plain["predictions"]))
    for answer, row in zip(plain["answers"], shares, strict=True):
        assert answer[0]["name"] == classes[row.argmax()]
        assert answer[0]["probability"] == pytest.approx(row.max(), abs=TOLERANCE)


ROW = [[[0, 1, 2]] * 8] * 8
WHOLE = cv2.imencode(".jpg", np.zeros((64, 64, 3), np.uint8))[1].tobytes()
LARGE = re.sub(rb"(?<=\xff\xc0.{3}).{4}", b"\xff" * 4, WHOLE, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 100_000, "the body is not JSON: "),
        ({"instances": []}, "with at least one image"),
        ({"instances": [ROW], "signature_name": "serve"}, "got the signature_name 'serve', expected serving_default"),
        ({"instances": [{"pictures": ROW}]}, "instances[0] is not"),
        ({"instances": [ROW] * 129}, "got 129 images, expected at most 128"),
        ({"instances": [[1, 2]]}, "instances[0] has the shape (2,), expected (8, 8, 3)"),
        ({"instances": [ROW, [*ROW[:7], [1]]]}, "instances[1] is not an array of the shape (8, 8, 3)"),
        ({"instances": [[[[0, 1, 256]] * 8] * 8]}, "instances[0] has values that are not integers from 0 to 255"),
        ({"instances": [{"b64": "AAAA"}]}, "instances[0] is not a JPEG, PNG, WebP, BMP, TIFF or G"),
        # One claims very many pixels, one is no more than its start.
        ({"instances": [{"b64": base64.b64encode(LARGE).decode()}]}, "vs 48,000,000 at most"),
        ({"instances": [{"b64": base64.b64encode(WHOLE[:300]).decode()}]}, "is truncated"),
    ],
)
def test_what_is_no_image_is_an_error_with_both_values(server, body, said):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx.post(f"{server.url}:predict", content=content, timeout=60)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_a_body_that_is_too_long_is_refused_and_the_server_goes_on(server):
    answer = httpx.post(f"{server.url}:predict", content=b" " * (MAX_BODY + 1), timeout=60)
    assert (answer.status_code, list(answer.json())) == (413, ["error"])
    assert "16,777,217 bytes, expected at most 16,777,216" in answer.json()["error"]
    parts = (b" " * 2**20 for _ in range(MAX_BODY // 2**20 + 1))
    assert httpx.post(f"{server.url}:predict", content=parts, timeout=60).status_code == 413
    assert predicted(server.url, {"instances": IMAGES[:1].tolist()})["predictions"]


HEAD = b"POST /v1/models/t:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


def slow_clients(server: Server, stack: contextlib.ExitStack, count: int, sent: bytes) -> list[socket.socket]:
    """Connections that send something and stop."""
    made = [stack.enter_context(socket.create_connection(("127.0.0.1", server.started["port"]))) for _ in range(count)]
    for connection in made:
        connection.settimeout(60)
        connection.sendall(sent)
    return made


def test_slow_clients_keep_nobody_waiting_and_more_than_there_may_be_are_refused(server):
    with contextlib.ExitStack() as stack:
        ask = b"GET /v1/models/t HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
        [second] = slow_clients(server, stack, 1, ask)
        assert second.recv(1000).startswith(b"HTTP/1.1 200 OK")
        second.sendall(b"x")
        heads = slow_clients(server, stack, 30, HEAD[:-2]) + slow_clients(server, stack, 5, b"")
        slow_clients(server, stack, 65, HEAD + b"{")
        for _ in range(20):
            assert predicted(server.url, {"instances": IMAGES[:1].tolist()})["predictions"]
        assert {head.recv(1) for head in heads} == {b""}, "a head that does not come ends the connection"
        while second.recv(1000):  # as does a second request that does not come
            pass
    with contextlib.ExitStack() as stack:
        slow_clients(server, stack, MAX_CONNECTIONS, HEAD + b"{")
        assert httpx.get(server.url, timeout=60).status_code == 503


@pytest.mark.slow
def test_ten_promotions_and_rollbacks_under_load_fail_no_request(store, runs):
    """20 requests a second from four clients; each answer is that of one of the two models."""
    image = IMAGES[0].tolist()
    found: list[tuple[int, Any]] = []
    ended = threading.Event()

    def load(url: str, pause: float) -> None:
        with httpx.Client(timeout=60) as client:
            while not ended.wait(pause):
                answer = client.post(f"{url}:predict", json={"instances": [image]})
                found.append((answer.status_code, answer.json()))

    with serving(store) as server:
        first = server.started["version"]
        clients = [threading.Thread(target=load, args=(server.url, 0.2)) for _ in range(4)]
        for client in clients:
            client.start()
        for change in range(10):
            now = champions.champion(store, "t")
            other = next(run for run in runs if run != now.run)
            changed = champions.roll_back(store, "t") if change % 2 else crowned(store, other)
            wait_for(server, lambda status, changed=changed: status["number"] == changed.number)
        ended.set()
        for client in clients:
            client.join()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(240) == 0
    assert changed.number == first + 10
    assert {status for status, _ in found} == {200}
    assert len({tuple(answer["predictions"][0]) for _, answer in found}) == 2, "each answer is one of the two models'"


def test_a_champion_predicts_by_its_name(store, runs, stages_here, tmp_path):
    assert cv2.imwrite(str(tmp_path / "a.png"), IMAGES[0][..., ::-1])
    files = (str(tmp_path / "a.png"), "--out", str(tmp_path / "out"))
    said = json.loads(output("models", "predict", "--champion", "t", *files, "--json", "--root", store.uri))
    assert said["run"] == champions.champion(store, "t").run
    sure = Guesses.read(store, f"runs/{said['run']}").confidences[0]
    assert said["pictures"][0]["classes"][0]["probability"] == pytest.approx(sure, abs=TOLERANCE)


def test_a_champion_is_laid_out_for_tensorflow_serving_and_kserve(store, runs, tmp_path):
    now = champions.champion(store, "t")
    command = ("models", "export", "t", str(tmp_path / "models"), "--root", store.uri)
    place = tmp_path / "models" / "t" / str(now.number)
    for _ in range(2):
        assert output(*command) == f"{place}\n"
        assert sorted(path.name for path in place.parent.iterdir()) == [str(now.number)]
        assert (place / "saved_model.pb").is_file()
        assert (place / "variables" / "variables.index").is_file()
    file = place / "saved_model.pb"
    whole = file.read_bytes()
    file.write_bytes(whole + b"another model")
    with pytest.raises(ArtifactError, match=rf"{file} has sha256 .* of champion number {now.number}.*move"):
        output(*command)
    file.write_bytes(whole)
    loaded: Any = tf.saved_model.load(str(place))
    logits = loaded.serve(tf.constant(IMAGES)).numpy()
    assert np.array_equal(logits.argmax(1), Guesses.read(store, f"runs/{now.run}").predictions)


def test_a_run_that_was_never_promoted_is_exported_and_served(store, runs, stages_here, tmp_path):
    run = trained(store, 2)
    command = ("models", "export", run, str(tmp_path / "models"), "--root", store.uri, "--json")
    said, place = json.loads(output(*command)), tmp_path / "models" / run / "1"
    assert (said["file"], said["differing"]) == (str(place), 0)
    assert sorted(path.name for path in place.parent.iterdir()) == ["1", "1.json"]
    loaded: Any = tf.saved_model.load(str(place))
    served = load_served(store, run)
    assert (served.version, served.run) == (1, run)
    assert np.abs(served.outputs(IMAGES)["output_0"] - loaded.serve(tf.constant(IMAGES)).numpy()).max() < TOLERANCE
    with pytest.raises(SettingsError, match="exists; move it away"):
        output(*command)
    follower = Follower(store, run)
    assert (follower.refresh(), follower.served.run) == ("", run)


def export_spec(store: Store, form: ExportFormat, file: Path, **values: Any) -> ExportSpec:
    entry = champions.champion(store, "t")
    asked = {"root": store.uri, "run": entry.run, "weights_sha256": entry.weights_sha256, "file": str(file)}
    return ExportSpec(format=form, **(asked | values))


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("form", "allowed", "share"),
    # Eight bits are steps of about 0.1 for a logit whose range is about 20, and each layer rounds.
    [pytest.param("onnx", 1e-3, 0, marks=needs_onnx), ("tflite", 1e-3, 0), ("tflite-int8", 1.5, 0.1)],
)
def test_a_file_is_judged_beside_the_model(store: Store, form: ExportFormat, allowed, share, tmp_path: Path) -> None:
    file = tmp_path / "models" / "t"
    result = export(export_spec(store, form, file), silent())
    evaluated = store.read_json(f"runs/{result.run}/evaluation.json")["trained"]["metrics"]["top1"]["value"]
    assert (result.examples, result.measure, result.model) == (TEST, "top1", evaluated)
    assert result.difference < allowed
    assert abs(result.exported - result.model) <= result.differing / TEST <= share
    assert result.bytes == file.stat().st_size
    beside = json.loads((tmp_path / "models" / "t.json").read_text())
    assert beside == result.model_dump(mode="json", exclude={"reused"})
    again = export(export_spec(store, form, tmp_path / "again"), silent())
    if form != "onnx":  # names in it are counted by the process
        assert (tmp_path / "again").read_bytes() == file.read_bytes()
    assert again.exported == result.exported


@pytest.mark.usefixtures("stages_here", "runs")
def test_a_command_names_the_file_and_its_figures_on_the_examples_asked_for(store: Store, podline, tmp_path) -> None:
    where = ("--format", "tflite-int8", "--examples", "50", "--root", store.uri, "--json")
    answer = podline("models", "export", "t", str(tmp_path), *where)
    assert answer.code == 0, answer.err
    result, file = json.loads(answer.out), tmp_path / "t" / f"{champions.champion(store, 't').number}-int8.tflite"
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name, f"{file.name}.json"]
    images, labels = IMAGES[:50], drawn(TEST, 1)["label"][:50]
    ask = lite_model(file.read_bytes())
    guesses = np.concatenate([ask(images[place : place + 1])[0] for place in range(50)]).argmax(axis=1)
    assert (result["file"], result["examples"], result["exported"]) == (str(file), 50, (guesses == labels).mean())


@pytest.mark.usefixtures("runs")
def test_a_model_that_cannot_be_converted_leaves_no_file(store: Store, tmp_path: Path, monkeypatch) -> None:
    def fails(*_: object) -> bytes:
        raise NotImplementedError("no such operation")

    monkeypatch.setattr("podline.champions.exporting.lite_file", fails)
    with pytest.raises(ArtifactError, match="as tflite: NotImplementedError: no such operation; give another --format"):
        export(export_spec(store, "tflite", tmp_path / "model.tflite"), silent())
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("podline.champions.exporting.lite_file", lambda *_: b"")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match="no space left on the device"):
        export(export_spec(store, "tflite", tmp_path / "model.tflite"), silent())


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize(("tells", "most"), [("classes", 5), ("labels", None)])
def test_an_answer_has_the_five_most_probable_classes_but_every_label(tells: str, most: int | None) -> None:
    signature = SimpleNamespace(structured_input_signature=((), {"images": tf.TensorSpec((None, 8, 8, 3), tf.uint8)}))
    usual = PictureReader.most.fget(SimpleNamespace(tells=tells))
    told = SimpleNamespace(tells=tells, most=usual, said=lambda *asked: SimpleNamespace(classes=None, answer=asked[-1]))
    assert Served(1, "t-1", signature, told, None, None).answers({"out": np.zeros((1, 9))}) == [most]


@pytest.mark.parametrize("command", ["serve", "export"])
def test_a_recipe_without_a_champion_is_named(store: Store, podline: Any, tmp_path: Path, command: str) -> None:
    place = (str(tmp_path),) if command == "export" else ()
    answer = podline("models", command, "other", *place, "--root", store.uri)
    assert "other has no champion" in answer.err


def test_a_problem_is_named_by_its_kind_and_leaves_the_status_when_it_is_over(tmp_path: Path, monkeypatch) -> None:
    def follow(listing: Exception | None = None, loading: Exception | None = None) -> str:
        """Follow with these errors; return the log line and the problem, which are the same at first."""
        with monkeypatch.context() as patched:
            if listing:
                patched.setattr(store, "list", Mock(side_effect=listing))
            patched.setattr(model, "load_served", Mock(side_effect=loading, return_value=Mock(version=2, run="t-2")))
            line = follower.refresh()
        assert line in ("", f"warning: {follower.problem}", "serves number 2, t-2")
        return follower.problem

    store, away = open_store(tmp_path), StoreUnavailableError("no answer")
    monkeypatch.setattr(model, "load_served", Mock(return_value=Mock(version=1, run="t-1")))
    store.publish_json("models/t/history/000001.json", {})
    follower = Follower(store, "t")
    assert follow(listing=away) == "still serves number 1, as the store cannot be read: no answer"
    assert follow() == ""
    store.publish_json("models/t/history/000002.json", {})
    damaged = follow(loading=ArtifactError("damaged"))
    assert damaged == "still serves number 1, as the new champion cannot be loaded: damaged"
    assert follow(listing=away) == "still serves number 1, as the store cannot be read: no answer"
    assert follow() == damaged  # it is loaded again after a pause
    store.publish_json("models/t/history/000003.json", {})
    assert follow(loading=away) == "still serves number 1, as the store cannot be read: no answer"
    store.publish_json("models/t/history/000004.json", {})
    assert (follow(), follower.served.run) == ("", "t-2")


def test_a_damaged_champion_is_not_served_and_the_old_one_stays(store, runs, server):
    now = champions.champion(store, "t")
    other = next(run for run in runs if run != now.run)
    name = f"runs/{other}/model/saved_model/saved_model.pb"
    whole = store.read_bytes(name)
    store.publish_bytes(name, whole[:-1] + b"x", replace=True)
    changed = crowned(store, other)
    wait_for(server, lambda status: "sha256" in status["problem"] and status["number"] == now.number)
    store.publish_bytes(name, whole, replace=True)
    wait_for(server, lambda status: status["problem"] == "" and status["number"] == changed.number)


def test_a_request_in_flight_is_answered_when_the_server_is_asked_to_end(server):
    """The last test of this server."""
    body = json.dumps({"instances": IMAGES[:1].tolist()}).encode()
    with socket.create_connection(("127.0.0.1", server.started["port"])) as connection:
        head = f"POST /v1/models/t:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:100])
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        connection.sendall(body[100:])
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")
    assert server.process.wait(240) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.started["port"]))
