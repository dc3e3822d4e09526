"""A headless Chromium that a test drives over DevTools' pipe: no package but the browser itself."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def path():
    """Of the browser, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="atoll-chromium-")
        to_browser, self.to = os.pipe()
        self.back, from_browser = os.pipe()

        def pipes():  # Chromium reads from 3 and writes to 4
            a, b = os.dup(to_browser), os.dup(from_browser)
            os.dup2(a, 3)
            os.dup2(b, 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
                   "--disable-component-update", "--user-data-dir=" + self.folder, "--remote-debugging-pipe"]
        self.process = subprocess.Popen([path(), *options, "about:blank"], preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number = 0
        self.buffer = b""
        self.events = []
        target = self.call("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        self.session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _message(self, until):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.back], [], [], max(0, until - time.monotonic()))
            if not ready:
                return None
            got = os.read(self.back, 1 << 20)
            if not got:
                raise RuntimeError("the browser ended")
            self.buffer += got
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, parameters=None, session=""):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            answer = self._message(until)
            if answer is None:
                raise RuntimeError(method + " got no answer from the browser")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(method + ": " + str(answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def open(self, url, width=1280, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        self.call("Page.navigate", {"url": url})

    def value(self, expression):
        got = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in got:
            raise RuntimeError(expression + ": " + str(got["exceptionDetails"]))
        return got["result"].get("value")

    def wait(self, expression, seconds=30):
        """Until the expression is true in the page; the assertion says what was there."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if self.value("(() => { try { return Boolean(" + expression + "); } catch { return false; } })()"):
                    return
            except RuntimeError as error:  # the page is on its way from one address to another
                if "context" not in str(error):
                    raise
            time.sleep(0.05)
        raise AssertionError(expression + " is not so; the page says: " + str(self.value("document.body.innerText"))[:3000] + str(self.faults())[:2000])

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": {"Tab": 9, "Enter": 13}[key],
                                                 "text": "\r" if key == "Enter" and kind == "keyDown" else ""})

    def drag(self, x0, x1, y):
        for kind, x in (("mousePressed", x0), ("mouseMoved", (x0 + x1) / 2), ("mouseMoved", x1), ("mouseReleased", x1)):
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "buttons": 0 if kind == "mouseReleased" else 1, "clickCount": 1})

    def faults(self):
        """What the page did that it should not: exceptions, errors in its log (a blocked resource is one), requests to elsewhere."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"])[:500])
            elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(parameters["entry"]["text"] + " " + parameters["entry"].get("url", ""))
            elif event.get("method") == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(("http://127.0.0.1:", "about:", "data:")):
                found.append("asked " + parameters["request"]["url"])
        return found

    def bytes_received(self):
        return sum(event["params"]["encodedDataLength"] for event in self.events if event.get("method") == "Network.loadingFinished")

    def picture(self, path, full=True):
        import base64
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", {"captureBeyondViewport": full})["data"]))

    def pdf_pages(self):
        import base64
        pdf = base64.b64decode(self.call("Page.printToPDF", {"preferCSSPageSize": True})["data"])
        return pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/")
