"""A headless Chromium, driven over the DevTools protocol through a pipe: no port, no driver.

The protocol's messages are JSON with a NUL behind each; Chromium reads them from descriptor 3 and
writes them to 4 (--remote-debugging-pipe).
"""

import fcntl
import itertools
import json
import os
import select
import subprocess
import time

_SECONDS = 120.0


class Browser:
    """One browser with one page; messages of the page's console and its requests are kept."""

    def __init__(self, folder):
        self._numbers = itertools.count(1)
        self._unread, self.events = b"", []
        theirs, self._to = _pipe()
        self._from, answers = _pipe()
        self._process = subprocess.Popen(
            [
                *("bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "bash"),
                *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-background-networking", "--disable-component-update"),
                *("--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe"),
                *(f"--user-data-dir={folder}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs, answers),
        )
        os.close(theirs)
        os.close(answers)
        self._session = None
        made = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=made, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._to)
        os.close(self._from)
        # Without its pipe the browser ends by itself.
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self):
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._unread:
            if not select.select([self._from], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"the browser has not answered for {_SECONDS:.0f} s")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise AssertionError("the browser has ended")
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def show(self, path, *, width=1280, height=900, scripts=True, media=""):
        """Load a page at a width of the screen."""
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Emulation.setEmulatedMedia", media=media)
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while all(event.get("method") != "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, expression):
        """Evaluate an expression in the page; its value as JSON."""
        how = {"returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", expression=expression, **how)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def settle(self):
        """Wait until what is due before the next picture is done."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def box(self, expression):
        """Place of an element on the screen, brought into view: left, top, width, height."""
        return self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.x, b.y, b.width, b.height]; }})({expression})"
        )

    def drag(self, start, end, *, steps=8):
        """Press the left button at a point, move to another, let go."""
        (x0, y0), (x1, y1) = start, end
        along = [(x0 + n / steps * (x1 - x0), y0 + n / steps * (y1 - y0)) for n in range(steps + 1)]
        events = [("mousePressed", along[0]), *(("mouseMoved", at) for at in along[1:])]
        for kind, (x, y) in (*events, ("mouseReleased", end)):
            held = {"button": "left", "buttons": int(kind != "mouseReleased"), "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)
        self.settle()

    def complaints(self):
        """Errors, refusals of the page's policy and exceptions since the page was loaded."""
        found = []
        for event in self.events:
            name, said = event.get("method"), event.get("params", {})
            if name == "Runtime.exceptionThrown":
                found.append(said["exceptionDetails"]["exception"]["description"])
            elif name == "Log.entryAdded":
                found.append(said["entry"]["text"])
        return found

    def requests(self):
        """Addresses that were asked for since the page was loaded."""
        sent = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]


def _pipe():
    """Both ends of a pipe, by descriptors above 4: no redirection takes another's place."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high
