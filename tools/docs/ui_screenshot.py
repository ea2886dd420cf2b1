#!/usr/bin/env python3
"""Takes the picture of /ui in docs/guides/ui.png: a chat with token probabilities, and charts under a light load.

  build/venv/bin/python tools/docs/ui_screenshot.py [QUIRE]

It needs selenium (tests/clients/requirements.txt), chromium and chromedriver (tools/setup.sh clients). It takes a minute,
because the charts show the last two.
"""

import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 60
WIDTH, HEIGHT = 1600, 900


def start(quire):
    """The server and its address."""
    model = ROOT / "tools/demo_model/model"
    command = [quire, "serve", model, "--port", "0", "--served-model-name", "demo", "--kv-cache-memory", "16M"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if found := re.search(r"ready on (http://\S+)/v1", line):
            return server, found.group(1)
    sys.exit("the server did not become ready")


def load(url, until):
    """Requests at irregular times, so that the charts have something to draw."""
    draw = random.Random(len(threading.enumerate()))
    while time.monotonic() < until:
        body = {"prompt": "Tell me a story. " * draw.randint(4, 60), "max_tokens": draw.randint(20, 300), "ignore_eos": True}
        request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=60).read()
        time.sleep(draw.expovariate(2))


def browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for name in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={folder}"):
        options.add_argument("--" + name)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return driver


def ask(driver, text):
    driver.find_element(By.CSS_SELECTOR, "#input").send_keys(text + Keys.ENTER)
    while not driver.execute_script("return !stopper && turns.length > 0"):
        time.sleep(0.1)


def main():
    quire = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/quire")
    server, url = start(quire)
    threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
    until = time.monotonic() + SECONDS
    clients = [threading.Thread(target=load, args=(url, until), daemon=True) for _ in range(3)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            driver = browser(folder)
            driver.get(url + "/ui")
            for client in clients:
                client.start()
            time.sleep(SECONDS - 10)
            driver.find_element(By.CSS_SELECTOR, "#probabilities").click()
            ask(driver, "What is 27 plus 48?")
            ask(driver, "Tell me a story.")
            token = driver.execute_script(
                "const all = [...document.querySelectorAll('article:last-of-type [tabindex]')];"
                "const token = all[Math.min(12, all.length - 1)]; if (token) token.focus(); return all.length")
            time.sleep(1.5)
            if not token:
                print("no token could be selected: the picture has no table of alternatives", file=sys.stderr)
            driver.save_screenshot(str(ROOT / "docs/guides/ui.png"))
            driver.quit()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
