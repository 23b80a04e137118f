"""Chromium without a window, driven over its protocol: pages are used as people use them, with keys and the pointer.

https://chromedevtools.github.io/devtools-protocol. The browser gets its commands over a pipe, so that no port is open,
and one browser with one tab serves all tests of a module.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from select import select
from time import monotonic
from typing import Any, Final

BROWSER: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",  # it has none when it is run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE: Final = 30.0  # seconds for an answer


class Browser:
    """A running browser."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._received = bytearray()
        self._number = 0
        self._tab = ""
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        end = monotonic() + PATIENCE
        while b"\0" not in self._received:
            ready, _, _ = select([self._read], [], [], max(0.0, end - monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            self._received += os.read(self._read, 1 << 20)
        text, _, rest = bytes(self._received).partition(b"\0")
        self._received = bytearray(rest)
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, url: str, *, media: Mapping[str, str] | None = None, before: str = "") -> BrowserPage:
        """The page, once it is loaded, in place of the previous one, as another tab would take thrice as long.
        `before`: a script that runs before those of the page.
        """
        page = BrowserPage(self, self._tab or self._new_tab())
        page.ask("Emulation.setEmulatedMedia", features=[{"name": k, "value": v} for k, v in (media or {}).items()])
        script = page.ask("Page.addScriptToEvaluateOnNewDocument", source=before)["identifier"]
        self.events.clear()
        page.ask("Page.navigate", url=url)
        page.evaluate(
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )
        page.settle()
        page.ask("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        return page

    def _new_tab(self) -> str:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._tab = tab = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable", tab)
        metrics = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", tab, **metrics)
        return tab


class BrowserPage:
    """The page in the browser's tab, until another one is opened."""

    def __init__(self, browser: Browser, tab: str) -> None:
        self._browser, self._tab = browser, tab

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._tab, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, awaited, as JSON has it."""
        result = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def settle(self) -> None:
        """Wait until all pending drawing is done."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")

    def press(self, *keys: str, modifiers: int = 0) -> None:
        """Press keys, one after the other: "a", "?", "ArrowLeft". `modifiers`: 8 is Shift."""
        for key in keys:
            fields: dict[str, Any] = {"key": key, "modifiers": modifiers, "code": key}
            if len(key) == 1:
                fields["text"] = key
            if key in VIRTUAL:
                fields["windowsVirtualKeyCode"] = VIRTUAL[key]
            self.ask("Input.dispatchKeyEvent", type="keyDown", **fields)
            self.ask("Input.dispatchKeyEvent", type="keyUp", **fields)
        self.settle()

    def type(self, selector: str, text: str) -> None:
        """Type a text in a field, replacing its content."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        self.ask("Input.insertText", text=text)
        self.settle()

    def pointer(self, kind: str, x: float, y: float, **params: Any) -> None:
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **params)

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.pointer(kind, x, y, button="none" if kind == "mouseMoved" else "left", clickCount=1)
        self.settle()

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        self.pointer("mousePressed", *begin, button="left", buttons=1, clickCount=1)
        for step in (0.3, 0.6, 1.0):
            x, y = (one + (other - one) * step for one, other in zip(begin, end, strict=True))
            self.pointer("mouseMoved", x, y, button="left", buttons=1)
        self.pointer("mouseReleased", *end, button="left", clickCount=1)
        self.settle()

    def press_on(self, selector: str) -> None:
        """Click the element."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self.settle()

    def text(self, selector: str) -> str:
        found: str = self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
        return found

    def count(self, selector: str) -> int:
        found: int = self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")
        return found

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Errors and warnings of scripts and of the policy so far."""
        return [text for event in self._mine() if (text := _complaint(event))]

    def requests(self) -> list[str]:
        """The addresses that the page has asked for."""
        return [event["params"]["request"]["url"] for event in self._mine() if event["method"] == REQUESTED]

    def _mine(self) -> Iterator[dict[str, Any]]:
        return (event for event in self._browser.events if event.get("sessionId") == self._tab)


REQUESTED: Final = "Network.requestWillBeSent"
VIRTUAL: Final = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
}


def _complaint(event: dict[str, Any]) -> str:
    params = event["params"]
    if event["method"] == "Runtime.exceptionThrown":
        return str(params["exceptionDetails"])
    if event["method"] == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
        return str(params["entry"]["text"])
    if event["method"] == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
        return str(params["args"])
    return ""


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in that folder, ended at the end."""
    to_it, write = os.pipe()
    read, from_it = os.pipe()
    command = ["bash", "-c", f'exec "$@" 3<&{to_it} 4>&{from_it}', "bash", str(BROWSER), *OPTIONS]
    process = subprocess.Popen(  # noqa: S603 - the system's browser
        [*command, f"--user-data-dir={folder}/profile"],
        pass_fds=(to_it, from_it),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(to_it)
    os.close(from_it)
    try:
        browser = Browser(write, read)
        yield browser
        browser.ask("Browser.close")
    finally:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(write)
        os.close(read)
