"""A chat on a terminal, as people type it: pastes, several lines, commands, a full context, history, wrapping, colours."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import rig
from conftest import MODEL, QUIRE, SLOWLY, Server, cannot_run
from test_commands import quire

ANSWERED = " tokens/s"


class Chat:
    """quire run on its own terminal, with a home of its own."""

    def __init__(self, home, *arguments, model=MODEL, width=0, term="xterm"):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM=term, HOME=str(home), XDG_STATE_HOME=str(home / "state"))
            if width:
                fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
            os.execv(QUIRE, [str(QUIRE), "run", str(model), "--temperature", "0", *map(str, arguments)])
        self.seen = ""
        self.wait_for("> ")

    def wait_for(self, text):
        deadline = time.monotonic() + 300
        while text not in self.seen:
            assert time.monotonic() < deadline and select.select([self.fd], [], [], 300)[0], (text, self.seen)
            self.seen += os.read(self.fd, 65536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def say(self, text):
        """Returns what the terminal shows until the next prompt."""
        self.type(text + "\r")
        shown = self.wait_for(ANSWERED)
        self.wait_for("> ")
        return shown

    def rest(self, keys=""):
        """Returns what the terminal shows until the program ends."""
        self.type(keys)
        try:
            while select.select([self.fd], [], [], 300)[0] and (got := os.read(self.fd, 65536)):
                self.seen += got.decode(errors="replace")
        except OSError:
            pass
        else:
            os.kill(self.pid, signal.SIGKILL)
        return self.seen

    def end(self, keys="\x04"):
        if keys:
            self.rest(keys)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return status


def tokens_in(shown):
    return int(re.search(r"\((\d+) tokens in", shown).group(1))


def saved(chat, path):
    chat.type(f"/save {path}\r")
    chat.wait_for("The chat is saved.")
    chat.wait_for("> ")
    return json.loads(path.read_text())["messages"]


@pytest.fixture(autouse=True)
def needs_libedit():
    if "libedit" not in subprocess.run(["ldd", QUIRE], capture_output=True, text=True).stdout:
        cannot_run("this build found no libedit")


def test_a_paste_is_one_message(tmp_path):
    """Also with a tab, control bytes and a line that looks like a command."""
    chat = Chat(tmp_path)
    code = "def f(x):\r\treturn x\x07\r/bye\r"
    chat.type("Explain: \x1b[200~" + code + "\x1b[201~")
    chat.say("")
    assert [m["content"] for m in saved(chat, tmp_path / "a.json") if m["role"] == "user"] == ["Explain: def f(x):\n\treturn x\n/bye"]
    assert chat.end() == 0


def test_quotes_in_a_message_are_text(tmp_path):
    """Pasted code with docstrings stays whole, and so does text behind closed quotes."""
    chat = Chat(tmp_path, "--max-tokens", "3")
    code = '"""About."""\ndef f():\n    """Does it."""\n    return 1'
    said = [(f"\x1b[200~{code}\x1b[201~", code), ('"""a""" b', '"""a""" b'), ('"""c"""', "c"), ('"""\x1b[200~d\ne\x1b[201~"""', "d\ne")]
    for typed, _ in said:
        chat.say(typed)
    chat.type('"""f\r')
    chat.wait_for("... ")
    chat.type('g = """x""" + y\r')
    chat.wait_for("... ")
    chat.say('h"""  ')
    assert [m["content"] for m in saved(chat, tmp_path / "a.json") if m["role"] == "user"] == [*(text for _, text in said), 'f\ng = """x""" + y\nh']
    assert chat.end() == 0


def test_keys_that_move_by_words(tmp_path):
    chat = Chat(tmp_path, "--max-tokens", "3")
    chat.say("one two three\x1b[1;5D\x1b[1;3DX\x1b[1;5C\x1b[1;3CY")
    assert saved(chat, tmp_path / "a.json")[0]["content"] == "one Xtwo threeY"
    assert chat.end() == 0


def test_several_lines(tmp_path):
    chat = Chat(tmp_path)
    chat.type('"""What is\r')
    chat.wait_for("... ")
    chat.type("12 plus 30?\r")
    chat.wait_for("... ")
    chat.say('"""')
    chat.type("one \\\r")
    chat.wait_for("... ")
    chat.say("two")
    assert [m["content"] for m in saved(chat, tmp_path / "a.json") if m["role"] == "user"] == ["What is\n12 plus 30?\n", "one \ntwo"]
    chat.type('"""lost\r')
    chat.wait_for("... ")
    chat.type("\x03")
    chat.wait_for("again ends the chat)")
    chat.wait_for("> ")
    assert chat.end() == 0


def test_commands(tmp_path):
    chat = Chat(tmp_path)
    chat.type("/help\r")
    for name in ("/bye", "/clear", "/system TEXT", "/set NAME VALUE", "/retry", "/save FILE", "/load FILE", "/stats", "/show"):
        chat.wait_for(name)
    chat.wait_for("> ")
    chat.type("/hepl\r")
    chat.wait_for("did you mean /help?")
    chat.wait_for("> ")
    one = tokens_in(chat.say("What is 12 plus 30?"))
    assert tokens_in(chat.say("What is 20 plus 30?")) > one
    chat.type("/stats\r")
    chat.wait_for("2 answers, 4 messages")
    chat.wait_for("> ")
    chat.type("/clear\r")
    chat.wait_for("The chat is empty")
    chat.wait_for("> ")
    chat.type("/system Be brief.\r")
    chat.wait_for("The system message is set")
    chat.wait_for("> ")
    chat.type("/set max_tokens 3\r")
    chat.wait_for("max_tokens 3")
    chat.wait_for("> ")
    chat.type("/set temperature hot\r")
    chat.wait_for("/set takes temperature")
    chat.wait_for("> ")
    again = chat.say("What is 12 plus 30?")
    assert tokens_in(again) > one and re.search(r", 3 tokens out", again)
    before = saved(chat, tmp_path / "a.json")
    assert before[0] == {"role": "system", "content": "Be brief."} and len(before) == 3
    chat.say("/retry")
    assert saved(chat, tmp_path / "b.json") == before  # greedy
    chat.type("/clear\r")
    chat.wait_for("> ")
    chat.type(f"/load {tmp_path / 'a.json'}\r")
    chat.wait_for("The chat is loaded.")
    chat.wait_for("> ")
    (tmp_path / "c.json").write_text('[{"role": "robot", "content": "x"}]')
    chat.type(f"/load {tmp_path / 'c.json'}\r")
    chat.wait_for("messages[0]: role: must be user")
    chat.wait_for("> ")
    assert saved(chat, tmp_path / "d.json") == before
    chat.type("/show\r")
    chat.wait_for("system: Be brief.")
    chat.wait_for("> ")
    chat.say("/etc/hosts is what?")  # a path is a message
    assert chat.end("/bye\r") == 0


def test_a_full_context_drops_the_oldest(tmp_path):
    chat = Chat(tmp_path, "--max-model-len", "256", "--max-tokens", "30")
    for i in range(6):
        chat.type(f"Tell me a story about the number {i} and many of its friends in the wide world.\r")
        shown = chat.wait_for(ANSWERED)
        chat.wait_for("> ")
        if "the context of 256 tokens is full" in shown:
            break
    else:
        raise AssertionError("nothing was dropped")
    users = [m["content"] for m in saved(chat, tmp_path / "a.json") if m["role"] == "user"]
    assert f"number {i} " in users[-1] and "number 0 " not in users[0]
    chat.type("word " * 400 + "\r")  # one message that can never fit: the chat goes on
    chat.wait_for("the context has only 256")
    chat.wait_for("> ")
    assert [m["content"] for m in saved(chat, tmp_path / "b.json") if m["role"] == "user"] == users
    assert chat.end() == 0
    chat = Chat(tmp_path, "--max-model-len", "128", "--max-tokens", "60", "--no-context-shift")
    for _ in range(6):
        chat.type("Tell me a story about the number 12 and many of its friends in the wide world.\r")
        chat.wait_for("> ")
        if "the context has only 128" in chat.seen:
            break
    chat.type("")
    assert chat.end() == 0


def test_typing_after_ctrl_c_counts_anew(tmp_path):
    chat = Chat(tmp_path)
    chat.type("\x03")
    chat.wait_for("again ends the chat)")
    chat.wait_for("> ")
    chat.type("a new question")
    chat.wait_for("question")
    chat.type("\x03")
    chat.wait_for("again ends the chat)")  # not the end
    chat.wait_for("> ")
    assert chat.end("\x03") == 0


def test_history_between_sessions(tmp_path):
    chat = Chat(tmp_path)
    chat.say("What is 12 plus 30?")
    assert chat.end() == 0
    kept = tmp_path / "state" / "quire" / "history"
    assert kept.stat().st_mode & 0o777 == 0o600
    chat = Chat(tmp_path)
    chat.type("\x1b[A\r")
    assert "12 plus 30" in chat.wait_for(ANSWERED)
    chat.wait_for("> ")
    assert chat.end() == 0


def test_words_are_not_broken_and_colours_are_for_terminals(tmp_path):
    story = quire("generate", MODEL, "Tell me a story.", "--temperature", "0", "--max-tokens", "60").stdout
    assert "\x1b" not in story
    chat = Chat(tmp_path, "--max-tokens", "60", width=40)
    shown = chat.say("Tell me a story.")
    answer = re.sub(r"\x1b\[\?2004[hl]|\r", "", shown.partition("\n")[2].rpartition("\n")[0])
    lines = [line for line in answer.split("\n") if line.strip()]
    assert len(lines) >= 4 and max(map(len, lines)) <= 40, lines
    assert " ".join(answer.split()) == " ".join(story.split())
    assert chat.end() == 0


def test_standard_input():
    question = ["--temperature", "0", "--max-tokens", "30"]
    alone = quire("generate", MODEL, *question, stdin="What is\n12 plus 30?\n")
    assert alone.returncode == 0 and alone.stdout == quire("generate", MODEL, "What is\n12 plus 30?", *question).stdout
    both = quire("generate", MODEL, "What is this?", *question, stdin="12 plus 30\n")
    assert both.stdout == quire("generate", MODEL, "What is this?\n\n12 plus 30", *question).stdout
    for prompt in ([""], ["  "], []):
        empty = quire("generate", MODEL, *prompt, *question, stdin="")
        assert empty.returncode == 1 and "the prompt is empty" in empty.stderr


def test_options_of_an_answer(tmp_path):
    usual = ["generate", MODEL, "What is 12 plus 30?", "--temperature", "0"]
    whole = quire(*usual).stdout
    assert "Tens" in whole
    for stop in (["Tens"], ["Tens:", "never"], ["zzz", " Tens"]):
        assert quire(*usual, "--stop", *stop).stdout == whole[:whole.index(stop[0] if "Tens" in stop[0] else stop[1])] + "\n"
    assert quire(*usual, "--stop", "never there").stdout == whole == quire(*usual, "--no-stream").stdout
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {"n": {"enum": [12, 42]}}, "required": ["n"], "additionalProperties": false}')
    for schema in (f"@{tmp_path / 'schema.json'}", (tmp_path / "schema.json").read_text()):
        assert isinstance(json.loads(quire(*usual, "--json-schema", schema, "--max-tokens", "40").stdout)["n"], int)
    (tmp_path / "text.json").write_text("no JSON")
    assert f"--json-schema @{tmp_path}/text.json: is not valid JSON" in quire(*usual, "--json-schema", f"@{tmp_path}/text.json").stderr
    wrong = quire(*usual, "--json-schema", "{")
    assert wrong.returncode == 1 and "--json-schema" in wrong.stderr
    plain = quire(*usual, "--json-schema", tmp_path / "schema.json")
    assert plain.returncode == 1 and f"--json-schema: {tmp_path}/schema.json is a file: write @{tmp_path}/schema.json" in plain.stderr
    hashes = {re.search(r"GB/s of weights; logprobs (sha256:[0-9a-f]{64})\)", quire(*usual, "--verbose", "--threads", n).stderr).group(1) for n in ("1", "2")}
    assert len(hashes) == 1
    assert hashes != {re.search(r"sha256:\w+", quire(*usual, "--verbose", "--kv-cache-dtype", "int8").stderr).group(0)}


def test_a_model_without_a_template_says_so(tmp_path):
    for file in MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    said = quire("generate", tmp_path, "Once upon", "--max-tokens", "3")
    assert said.returncode == 0 and "has no chat template: it continues the text" in said.stderr
    assert "template" not in quire("generate", tmp_path, "Once upon", "--max-tokens", "3", "--raw").stderr
    for model, has_line in ((tmp_path, True), (MODEL, False)):
        server = Server("serve", model, "--port", "0", "--served-model-name", "plain")
        assert ("plain has no chat template: /v1/completions continues text" in server.output()) == has_line
        assert server.stop() == 0


def test_the_end_of_a_chat_is_no_error(tmp_path):
    """Also before the first answer, and after a command that failed."""
    for first in ((), ("/load /nope",), ("/nope",)):
        for last in ("/bye", "/exit", "/quit"):
            chat = Chat(tmp_path)
            for command in first:
                chat.type(command + "\r")
                chat.wait_for("quire: ")
                chat.wait_for("> ")
            chat.type(last + "\r")
            assert "quire:" not in chat.rest() and chat.end("") == 0


def test_commands_with_wrong_arguments(tmp_path):
    chat = Chat(tmp_path)
    for command in ("/bye now", "/exit now", "/clear all", "/retry 3", "/stats x", "/show x", "/help set"):
        chat.type(command + "\r")
        chat.wait_for(f"{command.split()[0]} takes nothing after it")
        chat.wait_for("> ")
    chat.type(f"/load {tmp_path}/none/chat.json\r")
    chat.wait_for(f"quire: {tmp_path}/none/chat.json: cannot be opened")
    chat.wait_for("> ")
    (tmp_path / "text.json").write_text("no JSON")
    chat.type(f"/load {tmp_path}/text.json\r")
    chat.wait_for(f"quire: {tmp_path}/text.json: not valid JSON")
    chat.wait_for("> ")
    chat.type("/?\r")
    chat.wait_for("list the commands")
    chat.wait_for("> ")
    chat.type("/system -\r")
    chat.wait_for("The system message is removed.")
    chat.wait_for("> ")
    assert chat.end() == 0


def test_notices_are_broken_between_words(tmp_path):
    chat = Chat(tmp_path, width=80)
    for command in ("/help", "/set", "/set hot"):
        chat.type(command + "\r\n")
        shown = chat.wait_for("> ").partition("\n")[2]
        assert max(map(len, re.sub(r"\x1b\[\?2004[hl]|\r", "", shown).split("\n"))) <= 80, shown
        chat.wait_for("> ")
    assert chat.end() == 0


def test_a_message_that_never_fits_drops_nothing(tmp_path):
    chat = Chat(tmp_path, "--max-model-len", "256", "--max-tokens", "30")
    chat.say("Tell me a story.")
    chat.type("word " * 400 + "\r")
    assert "dropped" not in chat.wait_for("the context has only 256")
    chat.wait_for("> ")
    assert chat.end() == 0


def test_the_width_may_change_during_an_answer(tmp_path):
    """Words are not broken at the new width: 30 columns instead of 200."""
    chat = None

    def is_stopped_within_it():
        """A busy test may stop it after its end."""
        nonlocal chat
        chat = Chat(tmp_path, "--max-tokens", "300", *SLOWLY, width=200)
        chat.type("Tell me a story.\r")
        chat.wait_for("story.\r\n")
        chat.wait_for("Once ")  # the first word of the answer
        os.kill(chat.pid, signal.SIGSTOP)
        os.waitpid(chat.pid, os.WUNTRACED)
        while select.select([chat.fd], [], [], 0)[0]:
            chat.seen += os.read(chat.fd, 65536).decode(errors="replace")
        if "\n" not in chat.seen:  # within the first line
            return True
        os.kill(chat.pid, signal.SIGKILL)
        chat.end("")
        return False

    rig.wait_until(is_stopped_within_it)
    fcntl.ioctl(chat.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    os.kill(chat.pid, signal.SIGCONT)
    shown = chat.wait_for(ANSWERED)
    lines = re.sub(r"\x1b\[\?2004[hl]|\r", "", shown.rpartition("(")[0]).split("\n")
    assert len(lines) > 8 and max(map(len, lines[1:])) <= 30, lines
    chat.wait_for("> ")
    assert chat.end() == 0


def test_a_dumb_terminal_gets_no_escapes(tmp_path):
    chat = Chat(tmp_path, term="dumb")
    assert "\x1b" not in chat.say("Tell me a story.") + chat.rest("\x04") and chat.end("") == 0


def test_no_system_message_without_a_template(tmp_path):
    for file in MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config.pop("chat_template")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    said = quire("generate", tmp_path, "Once upon", "--max-tokens", "3", "--system", "Be brief.")
    assert said.returncode == 0 and "--system has no effect without a chat template" in said.stderr
    chat = Chat(tmp_path, model=tmp_path)
    chat.type("/system Be brief.\r")
    chat.wait_for("/system: without a chat template")
    chat.wait_for("> ")
    assert chat.end() == 0
