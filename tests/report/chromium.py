"""A headless Chromium for a whole run: pages stay open, and are measured at any size and theme.

It is driven by the Chrome DevTools Protocol over a pipe: JSON messages, each ended by a zero byte,
which Chromium reads from its descriptor 3 and writes to its descriptor 4.
"""

from __future__ import annotations

import base64
import io
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LIGHT, DARK = "light", "dark"

_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--remote-debugging-pipe",
)
_TIMEOUT = 120.0  # seconds, of a message; a loaded machine takes many
_MESSAGE_EVENTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}


class Browser:
    """A running Chromium and the pages that are open in it."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._unread = b""
        self._last_id = 0
        self._pages: dict[str, Page] = {}
        self._kept: dict[Path, Page] = {}

    def open(self, path: Path) -> Page:
        """Return a file's page, newly loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        page.load(path)
        return page

    def look_at(self, path: Path) -> Page:
        """Return a file's page, which may have been loaded before: not to be changed."""
        if path not in self._kept:
            self._kept[path] = self.open(path)
        return self._kept[path]

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Return the result of a method of the protocol; AssertionError if it fails."""
        self._last_id += 1
        request: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if session is not None:
            request["sessionId"] = session
        data = memoryview(json.dumps(request).encode() + b"\0")
        while data:
            data = data[os.write(self._requests, data) :]
        answer = self.receive(lambda message: message.get("id") == request["id"])
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    def receive(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the next message of that kind; those before it go to their pages."""
        deadline = time.monotonic() + _TIMEOUT
        while True:
            data, zero, unread = self._unread.partition(b"\0")
            if zero:
                self._unread = unread
                message: dict[str, Any] = json.loads(data)
                if message.get("method") in _MESSAGE_EVENTS:
                    self._pages[message["sessionId"]].messages.append(message["params"])
                if is_wanted(message):
                    return message
                continue
            ready, _, _ = select.select([self._answers], [], [], deadline - time.monotonic())
            received = os.read(self._answers, 1 << 20) if ready else b""
            assert received, "Chromium ended" if ready else "Chromium does not answer"
            self._unread += received


class Page:
    """A page in a tab of its own; `messages` is what its console has received."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.messages: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def load(self, path: Path) -> None:
        """Load a file and wait until its scripts have run."""
        self._call("Page.navigate", url=path.as_uri())
        loaded = {"method": "Page.loadEventFired", "sessionId": self._session}
        self._browser.receive(lambda message: loaded.items() <= message.items())

    def show(self, width: int, height: int, theme: str = LIGHT, media: str = "screen") -> Page:
        """Give the window this size in CSS pixels, and the reader these preferences."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)
        return self

    def run(self, code: str) -> Any:
        """Return what a function of that body returns inside the page; its policy does not apply.
        AssertionError if it throws."""
        expression = f"(() => {{ {code} }})()"
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def take_picture(self) -> Any:
        """Return what the window shows: an array of rows, columns and three colors, 0 to 255."""
        from matplotlib import image

        self._call("Page.bringToFront")
        picture = base64.b64decode(self._call("Page.captureScreenshot")["data"])
        return (image.imread(io.BytesIO(picture))[:, :, :3] * 255).round().astype(int)

    def print_pdf(self) -> bytes:
        """Return the page as a PDF."""
        return base64.b64decode(self._call("Page.printToPDF")["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)


@contextmanager
def running_chromium(folder: Path) -> Iterator[Browser]:
    """Provide a Chromium that has its profile in a folder, and end it."""
    pipes = [folder / "requests", folder / "answers"]
    for pipe in pipes:
        os.mkfifo(pipe)
    # A shell opens the pipes as the descriptors that Chromium expects.
    command = ["sh", "-c", 'exec "$@" 3<"$0/requests" 4>"$0/answers"', str(folder), str(CHROMIUM)]
    options = [*_OPTIONS, f"--user-data-dir={folder / 'profile'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
    requests, answers = os.open(pipes[0], os.O_WRONLY), os.open(pipes[1], os.O_RDONLY)
    try:
        browser = Browser(requests, answers)
        yield browser
        with suppress(AssertionError, BrokenPipeError):  # it may end before it answers
            browser.call("Browser.close")
    finally:
        os.close(requests)
        os.close(answers)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
