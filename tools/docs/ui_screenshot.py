#!/usr/bin/env python3
"""Takes the picture of /ui in docs/guides/ui.png: a conversation with Markdown, code and a table, and an answer with token
probabilities.

  build/venv/bin/python tools/docs/ui_screenshot.py [QUIRE]

The demo model writes plain sentences only. CONVERSATIONS are therefore imported, as a user imports a file; the demo model
writes the last answer. It needs selenium (tests/clients/requirements.txt), chromium and chromedriver (tools/setup.sh
clients).
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 1280, 900
MAX_BYTES = 150 * 1024

ANSWER = """Store the **keys and values** of earlier tokens, so that a step computes only the new token:

```python
def step(token, cache):
    q, k, v = project(token)
    cache.append(k, v)  # one block of 16 tokens at a time
    return attention(q, *cache.all())
```

| method | work for token *n* | memory |
|---|---|--:|
| without a cache | `O(n²)` | 0 |
| with a KV cache | `O(n)` | 2 · layers · width |
"""


def chat(name, title, changed, *texts):
    turns = [{"role": role, "text": text} for role, text in zip(("user", "assistant"), texts)]
    return {"id": name, "title": title, "changed": changed, "turns": turns}


CONVERSATIONS = {"quire": "conversations", "version": 1, "conversations": [
    chat("a", "How does a KV cache work?", 2000, "How does a KV cache work?", ANSWER),
    chat("b", "Tell me a story about a fox.", 1000, "Tell me a story about a fox."),
]}


def start(quire):
    """The server and its address."""
    model = ROOT / "tools/demo_model/model"
    command = [quire, "serve", model, "--port", "0", "--served-model-name", "demo", "--kv-cache-memory", "16M"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if found := re.search(r"ready on (http://\S+)/v1", line):
            return server, found.group(1)
    sys.exit("the server did not become ready")


def browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for name in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={folder}"):
        options.add_argument("--" + name)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return driver


def wait(driver, condition):
    deadline = time.monotonic() + 60
    while not driver.execute_script("return " + condition):
        if time.monotonic() > deadline:
            sys.exit(f"the page did not reach: {condition}")
        time.sleep(0.1)


def take(driver, url, file):
    """Imports the conversations, asks one question more, and points at the least likely token of the answer."""
    driver.get(url + "/ui")
    wait(driver, "models.length > 0")
    driver.execute_script("$('import-file').hidden = false")
    driver.find_element(By.ID, "import-file").send_keys(str(file))
    wait(driver, "document.querySelectorAll('#chats li').length === 2")
    driver.execute_script("$('import-file').hidden = true; showNotice('')")
    driver.find_element(By.CSS_SELECTOR, "#chats button").click()
    driver.find_element(By.ID, "probabilities").click()
    driver.find_element(By.ID, "input").send_keys("What is 27 plus 48?" + Keys.ENTER)
    wait(driver, "!stopper && turns.length === 4 && turns[3].tokens.length > 12")
    driver.execute_script("const {tokens, body} = turns[3]; body.childNodes[tokens.indexOf(tokens.reduce((a, b) => a.p < b.p ? a : b))].focus()")
    return driver.get_screenshot_as_png()


def main():
    quire = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/quire")
    server, url = start(quire)
    threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "conversations.json"
            file.write_text(json.dumps(CONVERSATIONS))
            driver = browser(folder + "/browser")
            picture = take(driver, url, file)
            driver.quit()
    finally:
        server.terminate()
        server.wait()
    if len(picture) > MAX_BYTES:
        sys.exit(f"the picture has {len(picture)} bytes; at most {MAX_BYTES} are allowed")
    (ROOT / "docs/guides/ui.png").write_bytes(picture)


if __name__ == "__main__":
    main()
