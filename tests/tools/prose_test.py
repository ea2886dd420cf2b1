"""Tests tools/check_prose.py: against sentences labelled by hand, and against sentences that reviewers quoted."""

import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
import check_prose  # noqa: E402
import prose_text  # noqa: E402


def rows(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]


class Prose(unittest.TestCase):
    def test_labelled_sentences(self):
        found = {(label, bool(check_prose.rules_broken(text))): 0 for label, _, text in rows("prose_labels.tsv")}
        for label, _, text in rows("prose_labels.tsv"):
            found[label, bool(check_prose.rules_broken(text))] += 1
        right, missed, wrong = found["1", True], found["1", False], found["0", True]
        self.assertEqual(sum(found.values()), 200)
        self.assertGreaterEqual(right / (right + wrong), 0.7, "precision")
        self.assertGreaterEqual(right / (right + missed), 0.7, "recall")

    def test_quoted_sentences(self):
        for source, all_of, least in (("house", 40, 36), ("newcomer", 10, 8)):
            quotes = [text for of, text in rows("prose_quotes.txt") if of == source]
            self.assertEqual(len(quotes), all_of)
            self.assertGreaterEqual(sum(bool(check_prose.rules_broken(q)) for q in quotes), least, source)

    def test_plain_sentences_pass(self):
        for text in (
            "Unsupported options and request fields are rejected with an error that names them.",
            "Every rank of a stage holds the embeddings and norms.",
            "When the limit is reached, the connection that has been idle longest is closed.",
            "A peer that is silent for this long is declared dead.",
            "What does it cost?",
        ):
            self.assertEqual(check_prose.rules_broken(text), [], text)

    def test_a_share_above_its_limit_fails(self):
        command = [sys.executable, "-B", os.path.join(HERE, "..", "..", "tools", "check_prose.py")]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "init", "-q", folder], check=True)
            page = os.path.join(folder, "page.md")
            for text, status in (("The server reads the file.\n", 0), ("Who waits reads why the engine is none.\n", 1)):
                with open(page, "w", encoding="utf-8") as file:
                    file.write(text)
                subprocess.run(["git", "-C", folder, "add", "page.md"], check=True)
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)

    def test_extraction(self):
        c = '// Owns the buffer. Thread: any.\n// Copies nothing.\nint f(void) { return error(e, "the file has no end, got %d"); }\n'
        self.assertEqual(
            list(prose_text.sentences("a.c", c)),
            [
                ("comment", 1, "Owns the buffer."),
                ("message", 3, "the file has no end, got `x`"),
            ],
        )
        md = "# Title\n\nOne. Two is `code`.\n\n    indented code\n\n| a | b |\n|---|---|\n| c | d |\n\n```\nfenced\n```\n"
        self.assertEqual(
            [text for _, _, text in prose_text.sentences("a.md", md)],
            ["Title", "One.", "Two is `x`.", "a", "b", "c", "d"],
        )


if __name__ == "__main__":
    unittest.main()
