"""Runs the quick start of README.md: pull, serve and curl, word by word, and compares the reply with the one printed there.

usage: readme_test.py QUIRE MODEL. The hub is a stub (fake_hub.py) that has the demo model under the name in README.md; the
port is a free one. tools/demo.sh, the first line, is not run: it builds.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from doc_blocks import block  # noqa: E402
from fake_hub import FakeHub, Repo  # noqa: E402

QUIRE, MODEL = sys.argv.pop(1), sys.argv.pop(1)
ROOT = os.path.join(HERE, "..", "..")


def commands(text):
    """[words] of each command of a shell block: comments are removed, continued lines are joined."""
    return [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").split("\n") if line.strip()]


def is_part(part, whole):
    """Whether every member of part is in whole with the same value."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_part(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(is_part, part, whole))
    return part == whole


class QuickStart(unittest.TestCase):
    def test_as_written(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            text = file.read()
        demo, package, pull, serve, curl = commands(block(text, "sh"))
        self.assertEqual((demo, package), (["bash", "tools/demo.sh"], ["bash", "tools/package.sh"]))
        self.assertEqual((pull[:2], serve[:2], curl[0]), (["build/quire", "pull"], ["build/quire", "serve"], "curl"))

        hub = FakeHub()
        self.addCleanup(hub.close)
        files = {path.name: path.read_bytes() for path in pathlib.Path(MODEL).iterdir()}
        hub.repos[pull[2]] = Repo(files)
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_")) and "proxy" not in k.lower()}
        env.update(HF_HOME=home.name, HF_ENDPOINT=hub.url)

        subprocess.run([QUIRE, *pull[1:]], env=env, check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen([QUIRE, *serve[1:], "--port", "0"], env=env, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        port = None
        for line in server.stderr:
            if found := re.search(r"ready on http://127\.0\.0\.1:(\d+)/v1", line):
                port = found.group(1)
                break
        self.assertIsNotNone(port, "the server did not become ready")

        request = [word.replace(":8000/", f":{port}/") for word in curl]
        self.assertIn(f":{port}/", " ".join(request))
        done = subprocess.run([*request, "-sS", "--noproxy", "*", "--max-time", "60"], env=env, check=True, capture_output=True)
        reply, shown = json.loads(done.stdout), json.loads(block(text, "json"))
        shown.pop("model")  # README.md shows the demo model's own name
        self.assertTrue(is_part(shown, reply), f"README.md shows\n{shown}\nand the server replied\n{reply}")


if __name__ == "__main__":
    unittest.main()
