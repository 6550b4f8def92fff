"""A headless Chromium, driven through a pipe: no package, no port, no network.

    with Browser() as browser:
        page = browser.open(path, width=1200, height=900)
        page.value("document.title")
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program():
    """The path of a Chromium; None if there is none."""
    wanted = os.environ.get("WEIR_CHROMIUM")
    return wanted or next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp()
        # It reads commands from its descriptor 3 and answers on 4.
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def place():
            os.dup2(theirs_in, 23), os.dup2(theirs_out, 24)
            os.dup2(23, 3), os.dup2(24, 4)
            os.set_inheritable(3, True), os.set_inheritable(4, True)

        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                     "--hide-scrollbars", "--force-device-scale-factor=1", "--no-first-run", "--disable-extensions",
                     "--disable-background-networking", f"--user-data-dir={self.folder}", "about:blank"]
        self.process = subprocess.Popen([program(), *arguments], preexec_fn=place, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in), os.close(theirs_out)
        self.into, self.out = ours_out, ours_in
        self.number, self.rest, self.events = 0, b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.into), os.close(self.out)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, seconds):
        """The next message; None if none comes for so long."""
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            if not select.select([self.out], [], [], max(0, end - time.monotonic()))[0]:
                return None
            read = os.read(self.out, 1 << 20)
            if not read:
                raise RuntimeError("the browser ended")
            self.rest += read
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        os.write(self.into, json.dumps(request).encode() + b"\0")
        while True:
            got = self.message(60)
            if got is None:
                raise RuntimeError(f"the browser does not answer {method}")
            if got.get("id") == self.number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']['message']}")
                return got["result"]
            self.events.append(got)

    def open(self, path, width=1200, height=900, dark=False, phone=False):
        return Page(self, path, width, height, dark, phone)


class Page:
    def __init__(self, browser, path, width, height, dark, phone):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=f"file://{os.path.abspath(path)}")
        end = time.monotonic() + 60
        while self.value("document.readyState + location.protocol") != "completefile:":
            if time.monotonic() > end:
                raise RuntimeError(f"{path} does not open")
            time.sleep(0.02)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def to_front(self):
        """Pages behind others get the mouse late."""
        self.call("Page.bringToFront")

    def value(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{expression}: {got['exceptionDetails']['exception'].get('description')}")
        return got["result"].get("value")

    def key(self, key, shift=False):
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0, **(text if kind == "keyDown" else {}))

    def click(self, element, across, down=0.5):
        """At a place in an element, as parts of its width and height."""
        box = self.value(f"document.getElementById('{element}').scrollIntoView({{block: 'center'}}),"
                         f"document.getElementById('{element}').getBoundingClientRect().toJSON()")
        at = {"x": box["x"] + across * box["width"], "y": box["y"] + down * box["height"]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1 if kind == "mousePressed" else 0, clickCount=1, **at)

    def picture(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """What the page wrote to the console, threw, or asked of the network."""
        self.value("1")
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            said = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(said["exceptionDetails"]["exception"].get("description", "exception"))
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(f"console: {said['args']}")
            elif event["method"] == "Log.entryAdded":
                found.append(said["entry"]["text"])
            elif event["method"] == "Network.requestWillBeSent" and not said["request"]["url"].startswith("file://"):
                found.append(f"asks for {said['request']['url'][:80]}")
        return found
