# SPDX-License-Identifier: MIT
"""chromium.py - a real browser for tests: headless Chromium, controlled by its
DevTools protocol over a pipe (messages of JSON that end with a zero byte), so
that only the browser is needed."""

import base64
import fcntl
import functools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from patience import PATIENCE, until

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """The browser's path, or None."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    return None


def high_pipe():
    """A pipe with descriptors from 10 on: 3 and 4 stay free."""
    low = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
    for end in low:
        os.close(end)
    return high


class Chromium:
    def __init__(self, *options):
        self.folder = tempfile.mkdtemp(prefix="weir-chromium-")
        self.number, self.lock = 0, threading.Condition()
        self.answers, self.events = {}, []
        theirs_in, self.out = high_pipe()
        self.input, theirs_out = high_pipe()

        def place():
            """The browser listens on descriptor 3 and speaks on 4."""
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)
        self.process = subprocess.Popen(
            [find(), "--headless=new", "--remote-debugging-pipe",
             *(["--no-sandbox"] if os.geteuid() == 0 else []),
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-extensions",
             "--disable-component-update", "--disable-sync",
             "--no-default-browser-check", "--hide-scrollbars",
             "--force-color-profile=srgb", *options,
             f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=self.environment())
        os.close(theirs_in)
        os.close(theirs_out)
        threading.Thread(target=self.read, daemon=True).start()

    def environment(self):
        """All that the browser writes is in its own folder: it leaves its
        temporary files behind when it is ended by a signal."""
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("XDG_")}
        return dict(kept, HOME=self.folder, TMPDIR=self.folder)

    def read(self):
        with os.fdopen(self.input, "rb") as stream:
            text = b""
            while part := stream.read1(1 << 20):
                *whole, text = (text + part).split(b"\0")
                for message in map(json.loads, whole):
                    self.take(message)
        with self.lock:
            self.answers[None] = {"error": "the browser has ended"}
            self.lock.notify_all()

    def take(self, message):
        with self.lock:
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)
            self.lock.notify_all()

    def call(self, method, session=None, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        with self.lock:
            if not self.lock.wait_for(
                    lambda: number in self.answers or None in self.answers,
                    PATIENCE):
                raise AssertionError(f"{method}: not within {PATIENCE} s")
            answer = self.answers.pop(number, None) or self.answers[None]
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        until("the browser's folder is removed", self.removed)

    def removed(self):
        """The browser's other processes write to its folder until they end,
        perhaps later than the browser."""
        shutil.rmtree(self.folder, ignore_errors=True)
        return not os.path.exists(self.folder)


class Page:
    """A tab."""

    def __init__(self, browser, url, width=1280, height=800, dark=False):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")
        self.target = target["targetId"]
        self.session = browser.call("Target.attachToTarget", flatten=True,
                                    targetId=self.target)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.set_dark(dark)
        self.go(url)

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, **params)

    def go(self, url):
        self.call("Page.navigate", url=url)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=False)

    def set_dark(self, dark):
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme",
             "value": "dark" if dark else "light"}])

    def run(self, script):
        """The value of a script; a promise is awaited."""
        said = self.call("Runtime.evaluate", expression=script,
                         awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in said:
            raise AssertionError(f"{script}: {said['exceptionDetails']}")
        return said["result"].get("value")

    def until(self, what, script, patience=PATIENCE):
        """Asks until the script's value is true, and returns it."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            try:
                value = self.run(script)
            except AssertionError:
                value = None  # the page is being changed
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f"{what}: not within {patience} s\n"
                             f"{self.errors()}")

    def text(self, selector):
        return self.run("(document.querySelector("
                        f"{json.dumps(selector)}) || {{}}).innerText || ''")

    def click(self, selector):
        """Clicks with the mouse on the middle of the element."""
        spot = self.until(f"{selector} to click on", f"""(() => {{
            const one = document.querySelector({json.dumps(selector)});
            if (!one || one.disabled) return null;
            one.scrollIntoView({{block: "nearest"}});
            const r = one.getBoundingClientRect();
            return r.width ? [r.x + r.width / 2, r.y + r.height / 2] : null;
            }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=spot[0],
                      y=spot[1], button="left", clickCount=1)

    def press(self, selector):
        """Clicks without the mouse, for elements that the page redraws: a
        button that is replaced between the mouse's two events isn't clicked."""
        self.until(f"{selector} to press", f"""(() => {{
            const one = document.querySelector({json.dumps(selector)});
            if (one) one.click();
            return one !== null;
            }})()""")

    def key(self, key):
        codes = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40,
                 "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "End": 35,
                 "Home": 36, "PageDown": 34}
        for kind in ("keyDown", "keyUp"):
            extra = {"text": key} if len(key) == 1 and kind == "keyDown" \
                else {"windowsVirtualKeyCode": codes.get(key, 0)}
            if key == "Enter" and kind == "keyDown":
                extra["text"] = "\r"
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **extra)

    def write(self, selector, text):
        """Replaces a field's text."""
        self.click(selector)
        self.run("document.activeElement.select()")
        self.call("Input.insertText", text=text)

    def picture(self, path):
        said = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as out:
            out.write(base64.b64decode(said["data"]))

    def errors(self):
        """The page's errors so far."""
        found = []
        with self.browser.lock:
            events = list(self.browser.events)
        for event in events:
            if event.get("sessionId") != self.session:
                continue
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"])
            if event["method"] == "Log.entryAdded" and \
                    params["entry"]["level"] == "error":
                found.append(params["entry"]["text"] + " " +
                             params["entry"].get("url", ""))
        return found

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)


def sees(page, selector, text):
    """Waits until an element's text contains 'text'."""
    page.until(f"'{text}' in {selector}",
               f"(document.querySelector({json.dumps(selector)}) || {{}})"
               f".innerText?.includes({json.dumps(text)})")


@functools.cache
def shared():
    """The browser of this process; it ends with the tests. It checks no
    certificates: live_tls.py is for them."""
    made = Chromium("--ignore-certificate-errors")
    unittest.addModuleCleanup(made.close)
    return made
