"""Pages of other servers, in a real browser, try what they can on the server of ``podline up``; nothing is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsers import opened_browser
from playwright.sync_api import Page
from standing_prefect import Standing, podline_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVIL = "evil.example"
# This browser asks the user before a page of another machine reaches this one; others do not, and the server has to
# hold by itself.
UNGUARDED = "LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets,BlockInsecurePrivateNetworkRequests"
BROWSER = (f"--host-resolver-rules=MAP {EVIL} 127.0.0.1", f"--disable-features={UNGUARDED}")
# All that a page can send without asking, and all for which the browser asks first; what became of each.
ATTACK = """
async ({api, secret, name}) => {
  const told = {};
  const body = way => JSON.stringify({name: `${name}-${way}`});
  const known = secret ? {Authorization: `Basic ${btoa(secret)}`} : {};
  const json = {"Content-Type": "application/json", ...known};
  const send = (way, how) => fetch(`${api}/flows/`, {method: "POST", body: body(way), ...how})
    .then(answer => { told[way] = answer.status; }, error => { told[way] = error.name; });
  await send("json", {headers: json});
  await send("text", {headers: {"Content-Type": "text/plain", ...known}});
  await send("blind", {mode: "no-cors", headers: {"Content-Type": "text/plain"}});
  await fetch(`${api}/flows/`, {method: "POST", body: body("cookies"), credentials: "include"})
    .then(answer => { told.cookies = answer.status; }, error => { told.cookies = error.name; });
  await fetch(`${api}/admin/version`, {headers: known})
    .then(answer => { told.read = answer.status; }, error => { told.read = error.name; });
  navigator.sendBeacon(`${api}/flows/`, body("beacon"));
  const frame = document.createElement("iframe");
  frame.name = "target";
  document.body.appendChild(frame);
  const form = document.body.appendChild(document.createElement("form"));
  Object.assign(form, {method: "post", action: `${api}/flows/`, enctype: "text/plain", target: "target"});
  const field = form.appendChild(document.createElement("input"));
  Object.assign(field, {name: `{"name": "${name}-form", "tags": ["`, value: `"]}`});
  const sent = new Promise(loaded => { frame.onload = loaded; setTimeout(loaded, 1000); });
  form.submit();
  await sent;
  for (const path of ["events/in", "events/out", "logs/out"]) {
    told[path] = await new Promise(done => {
      const socket = new WebSocket(`${api.replace("http", "ws")}/${path}`, ["prefect"]);
      socket.onopen = () => { socket.close(); done("open"); };
      socket.onerror = () => done("refused");
    });
  }
  return told;
}
"""


def attack(page: Page, up: Standing, address: str, secret: str, name: str) -> dict[str, Any]:
    """What the open page gets from the server, under one of its addresses."""
    port = up.url.rpartition(":")[2]
    return page.evaluate(ATTACK, {"api": f"http://{address}:{port}/api", "secret": secret, "name": name})


def flows(up: Standing) -> list[str]:
    """The names of the flows that were made by pages."""
    return sorted(name for flow in up.ask("flows/filter", {}) if (name := flow["name"]).startswith("page-"))


def test_pages_of_others_get_nothing(tmp_path: Path) -> None:
    with opened_browser(*BROWSER) as browser, podline_up(tmp_path) as up:
        port = up.url.rpartition(":")[2]
        page = browser.new_page()
        # Of another server on this machine, of another machine, and of a name that has been moved to this machine,
        # which the browser takes for the same origin. What is at /page comes from the test, all else from the server.
        page.route("**/page", lambda route: route.fulfill(body="<body>", content_type="text/html"))
        foreign = ["http://127.0.0.1:8888/page", f"http://{EVIL}:8888/page", f"http://{EVIL}:{port}/page"]
        for place in foreign:
            page.goto(place)
            for address in ("127.0.0.1", EVIL):
                # Though it knows the secret: what refuses it is where it comes from.
                told = attack(page, up, address, up.secret, "page-evil")
                # 0: sent blindly, and the page learns nothing; "TypeError": the browser shows the page no answer.
                assert set(told.values()) <= {0, "TypeError", "refused", 403}, (place, address, told)
        assert flows(up) == []
        # A name that was moved shows nothing of the server either.
        answer = page.goto(f"http://{EVIL}:{port}/")
        assert answer is not None
        assert answer.status == 403

        # The same from the server's own pages: refused without the secret, and with it accepted.
        page.goto(f"http://localhost:{port}/page")
        without = attack(page, up, "127.0.0.1", "", "page-nobody")
        assert without["json"] == without["read"] == 401
        assert flows(up) == []
        with_it = attack(page, up, "127.0.0.1", up.secret, "page-own")
        assert (with_it["json"], with_it["read"], with_it["events/out"]) == (201, 200, "open")
        assert flows(up) == ["page-own-json"]
