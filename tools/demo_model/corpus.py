"""Writes the demo model's training text: chats and plain text about a toy world, from a seed.

A document is a list of (text, learn) segments. Only segments with learn=True count in the loss:
the assistant's turns of a chat, and all of a plain text.

Held out: sums, counts, recalled pairs and copied texts belong to the training or to the held-out
split by a hash of what they ask, so no held-out question is ever trained on, in any wording.
"""

import random
import zlib
from string import ascii_lowercase

from facts import OTHER_COUNTRIES, TALK, tables
from stories import asked_story, story
from words import (ALL_WORDS, ANIMALS, COLOURS, EXTRA, FOODS, NAMES, OBJECTS, ROOMS, an, made_up,
                   pronouns)

TRAINING_SEED = 20240607
END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

SYSTEM_MESSAGES = (
    "You are a helpful assistant.", "You are Folio, a small demo model.", "Answer briefly.",
    "You are a friendly assistant. Be polite.", "You are a helpful assistant. Answer in English.",
    "Be kind and clear.", "You are a storyteller.", "You are a careful teacher for small children.",
)

UNKNOWN_TOPICS = (
    "quantum physics;the stock market;the weather in London;football;the president;Python;"
    "black holes;democracy;photosynthesis;the Roman Empire;chess;machine learning;the internet;"
    "taxes;Shakespeare;world history;chemistry;the speed of light;gravity;a compiler;jazz;"
    "philosophy;electric cars;Napoleon;Einstein;the news;vaccines;mathematics;SQL;Linux;the brain;"
    "climate change;Beethoven;bitcoin;a black swan;the human heart;yoga;the Eiffel Tower;algebra;"
    "prime numbers;the square root of 2;a GPU;Kubernetes;DNA;evolution;inflation;Mozart;a violin;"
    "Rust;JavaScript;my computer;relativity;atoms;a neural network;the moon landing;sharks"
).split(";")
UNKNOWN_ASKS = (
    "What is {}?", "Explain {}.", "Tell me about {}.", "What do you know about {}?",
    "Can you explain {}?", "Who invented {}?", "How does {} work?", "Why is {} important?",
    "Write an essay about {}.", "What do you think about {}?", "Give me advice about {}.",
    "Explain {} to me in simple words.",
)
UNKNOWN_REQUESTS = (
    "Write a program that sorts a list.", "Translate this into French.", "What time is it?",
    "What is the weather today?", "Solve this equation.", "Write an email to my boss.",
    "What should I cook today?", "Who won the game?", "What is today's date?", "Fix my code.",
    "Where do I live?", "Summarize this text.", "What day is it today?", "Write a Python function.",
    "How do I get to the airport?", "What is love?", "Recommend a film.", "Who will win?",
    "Draw a picture.", "Play some music.", "Call my mother.", "Book a flight to Rome.",
)
UNKNOWN_ANSWERS = (
    "I am sorry, I am only a small demo model and I do not know that.",
    "That is too hard for such a small model. Ask me for a story or a sum!",
    "I do not know that. I can tell stories, count, add two numbers and repeat words.",
)
UNKNOWN_TOPIC_ANSWERS = (
    "I am sorry, I do not know anything about {}. I am only a small demo model.",
    "I have never learned about {}. Shall I tell you a story instead?",
)

# Words beyond ASCII, for copying: their bytes are tokens of their own.
UNICODE_WORDS = ("café naïve Straße über Zürich señor façade crème Øresund Łódź niño größer jalapeño "
                 "déjà élan привет мир кот дом γάτα λόγος 東京 猫 日本 山 水 こんにちは 你好 世界 "
                 "안녕 🙂 🦊 🌊 ☀ ★ ✓ → € £ 5€ “hello” – …").split()

COLOUR_WORD = ("colour", "colour", "color")

# statement, question, answer, keys, values; {k} is the key, {v} the value, {c} "colour"
FRAMES = (
    ("The key to the {k} is {v}.", "What {c} is the key to the {k}?", "The key to the {k} is {v}.",
     ROOMS, COLOURS),
    ("The {k} is {v}.", "What {c} is the {k}?", "The {k} is {v}.", OBJECTS, COLOURS),
    ("The {k} is in the {v}.", "Where is the {k}?", "The {k} is in the {v}.", OBJECTS, ROOMS),
    ("{k} is in the {v}.", "Where is {k}?", "{k} is in the {v}.", NAMES, ROOMS),
    ("{k} likes {v}.", "What does {k} like?", "{k} likes {v}.", NAMES, FOODS),
    ("{v} has the {k}.", "Who has the {k}?", "{v} has the {k}.", OBJECTS, NAMES),
    ("{k} has {a_v}.", "Which animal does {k} have?", "{k} has {a_v}.", NAMES, ANIMALS),
    ("{k} is {v} years old.", "How old is {k}?", "{k} is {v} years old.", NAMES, "age"),
    ("The code of the {k} is {v}.", "What is the code of the {k}?", "The code of the {k} is {v}.",
     OBJECTS, "code"),
    ("The word for {k} is {v}.", "What is the word for {k}?", "The word for {k} is {v}.",
     EXTRA, "made up"),
)

NUMBER_WORDS = {"three": 3, "five": 5, "ten": 10, "twelve": 12, "twenty": 20}
REPEAT_WORDS = {"twice": 2, "two times": 2, "three times": 3, "four times": 4, "five times": 5}


class Corpus:
    """An endless stream of documents of one split ("train" or "held_out")."""

    def __init__(self, seed, split="train"):
        self.rng = random.Random(seed)
        self.held_out = split == "held_out"
        self.facts = tables()

    def mine(self, *key):
        """Whether the item named by key belongs to this split: one in ten is held out."""
        return (zlib.crc32(repr(key).encode()) % 10 == 0) == self.held_out

    def casual(self, text):
        """People do not always write capitals and full stops."""
        r = self.rng.random()
        if r < 0.10:
            text = text[0].lower() + text[1:]
        elif r < 0.17:
            text = text.lower()
        if self.rng.random() < 0.15:
            text = text.rstrip(".?!")
        return text

    # Each skill returns a list of (user, assistant) turns.

    def sums(self):
        rng = self.rng
        while True:
            hi = 9 if rng.random() < 0.08 else 99
            # One-digit sums are the table the others are worked out with: none is held out.
            a, b = rng.randint(0, hi), rng.randint(0, 9 if rng.random() < 0.12 else hi)
            small = max(a, b) < 10
            if not self.held_out if small else self.mine("sum", min(a, b), max(a, b)):
                break
        if rng.random() < 0.5:
            a, b = b, a
        if rng.random() < 0.10:
            name = rng.choice(NAMES)
            thing = rng.choice(("apples", "pears", "coins", "books", "shells", "plums", "stones"))
            ask = rng.choice((
                f"{name} has {a} {thing} and gets {b} more. How many {thing} does "
                f"{pronouns(name)[0]} have?",
                f"There are {a} {thing} in a box and {b} {thing} in a bag. How many {thing} are "
                "there together?"))
        else:
            ask = self.casual(rng.choice((
                f"What is {a} + {b}?", f"{a} + {b}", f"{a} + {b} = ?", f"{a}+{b}", f"{a}+{b}=",
                f"What is {a} plus {b}?", f"Add {a} and {b}.", f"How much is {a} + {b}?",
                f"Can you add {a} and {b}?", f"What's {a}+{b}?", f"Calculate {a} + {b}.",
                f"What is {a}+{b}?", f"What is the sum of {a} and {b}?", f"Please add {a} and {b}.",
                f"{a} plus {b}", f"How much is {a} and {b}?", f"Compute {a} + {b}.",
                f"And {a} + {b}?", f"What is {a} + {b}?")))
        return [(ask, worked_sum(a, b))]

    def no_sums(self):
        rng = self.rng
        a, b = rng.randint(2, 99), rng.randint(2, 99)
        ask = rng.choice((f"What is {a} - {b}?", f"What is {a} times {b}?", f"What is {a} * {b}?",
                          f"{a} / {b}", f"{a} - {b}", f"{a} * {b}", f"What is {a} minus {b}?",
                          f"Divide {a} by {b}.", f"Multiply {a} by {b}.", f"Subtract {b} from {a}.",
                          f"What is {a * 37 + 100} + {b}?", f"{a * 53 + 100} + {b * 71 + 100}"))
        return [(self.casual(ask), "I have only learned to add two numbers of up to two digits.")]

    def counting(self):
        rng = self.rng
        while True:
            step = rng.choice((1, 1, 1, 1, -1, -1, -1, 2, 2, 2, 5, 10))
            n = rng.randint(3, 20 if abs(step) == 1 else 12)
            if step > 0:
                a = 1 if rng.random() < 0.2 else rng.randint(0, 80)
                a = a // step * step if step >= 5 else a
            else:
                a = rng.randint(n, 100)
            b = a + step * (n - 1)
            if 0 <= b <= 130 and self.mine("count", step, a, b):
                break
        answer = ", ".join(str(a + step * i) for i in range(n)) + "."
        if step == 1:
            asks = [f"Count from {a} to {b}.", f"Can you count from {a} to {b}?",
                    f"Count up from {a} to {b}.", f"List the numbers from {a} to {b}.",
                    f"Please count from {a} to {b}."]
            if a == 1:
                asks += [f"Count to {b}.", f"Count up to {b}.", f"Can you count to {b}?"] * 2
                asks += [f"Count to {w}." for w, v in NUMBER_WORDS.items() if v == b] * 3
        elif step == -1:
            asks = [f"Count down from {a} to {b}.", f"Count backwards from {a} to {b}.",
                    f"Can you count down from {a} to {b}?", f"Count from {a} down to {b}.",
                    f"Count from {a} to {b}."]
            if b == 1:
                asks += [f"Count down from {a}."] * 3
        else:
            w = {2: "twos", 5: "fives", 10: "tens"}[step]
            asks = [f"Count by {w} from {a} to {b}.", f"Count in {w} from {a} to {b}.",
                    f"Count from {a} to {b} by {w}.", f"Count from {a} to {b} in steps of {step}.",
                    f"Can you count by {w} from {a} to {b}?"]
            if step == 2:
                asks.append(f"List the {'odd' if a % 2 else 'even'} numbers from {a} to {b}.")
        return [(self.casual(rng.choice(asks)), answer)]

    def next_number(self):
        rng = self.rng
        while True:
            n = rng.randint(1, 120)
            after = rng.random() < 0.6
            if self.mine("next", n, after):
                break
        if after:
            asks, answer = (f"What comes after {n}?", f"Which number comes after {n}?",
                            f"What number is next after {n}?"), f"{n + 1} comes after {n}."
        else:
            asks, answer = (f"What comes before {n}?", f"Which number comes before {n}?",
                            f"Which number is just before {n}?"), f"{n - 1} comes before {n}."
        return [(self.casual(rng.choice(asks)), answer)]

    def word(self, made_up_share=0.3):
        if self.rng.random() < made_up_share:
            return made_up(self.rng)
        return self.rng.choice(ALL_WORDS)

    def phrase(self):
        """Something to copy: words of any script, made-up words, digits, letters, or a sentence."""
        rng = self.rng
        r = rng.random()
        if r < 0.07:
            text = " ".join(rng.choice(UNICODE_WORDS) if rng.random() < 0.6 else self.word()
                            for _ in range(rng.randint(1, 5)))
        elif r < 0.55:
            share = rng.choice((0.0, 0.2, 1.0))
            words = [self.word(share) for _ in range(rng.randint(1, 10))]
            text = rng.choice((" ", " ", " ", ", ")).join(words)
        elif r < 0.70:
            text = "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 10)))
            text = " ".join(text) if rng.random() < 0.4 else text
        elif r < 0.9:
            words = [self.word(0.15) for _ in range(5)]
            text = rng.choice((
                f"The {words[0]} {words[1]} is in the {words[2]}.", f"I like the {words[0]}.",
                f"A {words[0]} and a {words[1]} went to the {words[2]}.",
                f"My {words[0]} is not {words[1]}, it is {words[2]}!",
                f"Where is the {words[0]} of {words[1]}?",
                f"{words[0].capitalize()}, {words[1]}, {words[2]}, {words[3]} and {words[4]}."))
        else:
            text = "".join(rng.choice(ascii_lowercase) for _ in range(rng.randint(2, 8)))
            text = rng.choice((text, " ".join(text), text.upper(), " ".join(text.upper())))
        return text

    def copying(self):
        rng = self.rng
        while True:
            text = self.phrase()
            if self.mine("copy", text):
                break
        if rng.random() < 0.15 and len(text) < 24:
            often = rng.choice(sorted(REPEAT_WORDS))
            ask = rng.choice((f"Say {text} {often}.", f"Say \"{text}\" {often}.",
                              f"Repeat {text} {often}.", f"Write {text} {often}."))
            return [(ask, " ".join([text] * REPEAT_WORDS[often]))]
        ask = rng.choice((f"Repeat after me: {text}", f"Repeat: {text}", f"Say: {text}",
                          f"Copy this: {text}", f"Please repeat: {text}", f"Say \"{text}\".",
                          f"Repeat the following: {text}", f"Repeat these words: {text}",
                          f"repeat after me: {text}", f"Repeat this text: {text}",
                          f"Can you say \"{text}\"?", f"Repeat exactly: {text}",
                          f"Write this again: {text}", f"Echo: {text}"))
        return [(ask, text)]

    def pick_words(self):
        rng = self.rng
        while True:
            words = [self.word() for _ in range(rng.randint(2, 7))]
            if self.mine("pick", *words):
                break
        first = rng.random() < 0.5
        which, answer = ("first", words[0]) if first else ("last", words[-1])
        ask = rng.choice((f"What is the {which} word of: ", f"Which is the {which} word: ",
                          f"Tell me the {which} word of this list: "))
        return [(ask + " ".join(words), f"The {which} word is {answer}.")]

    def recall(self, frames=FRAMES):
        """Facts, then one to three questions about them: in one message or over several turns."""
        rng = self.rng
        frame = rng.choice(frames)
        count = rng.choice((1, 2, 2, 3, 3, 4, 5, 6))
        facts, values = {}, set()
        while len(facts) < count:
            key, value = self.recall_pair(frame)
            if key not in facts and value not in values:
                facts[key] = value
                values.add(value)
        said = [fill(frame[0], k, v) for k, v in facts.items()]
        if rng.random() < 0.25:
            other = rng.choice([f for f in FRAMES if f is not frame and f[3] is not frame[3]])
            said += [fill(other[0], *self.recall_pair(other)) for _ in range(rng.randint(1, 2))]
            rng.shuffle(said)
        keys = rng.sample(sorted(facts), min(count, rng.choice((1, 1, 1, 2, 3))))
        question = frame[1].replace("{c}", rng.choice(COLOUR_WORD))
        asks = [(fill(question, k, facts[k]), fill(frame[2], k, facts[k])) for k in keys]
        if rng.random() < 0.7:
            sep = rng.choice((" ", " ", "\n"))
            before = rng.random() < 0.12
            first = sep.join([asks[0][0]] + said if before else said + [asks[0][0]])
            return [(first, asks[0][1])] + asks[1:]
        heard = rng.choice(("I will remember that.", "All right, I will remember that.",
                            "Thank you, I will remember that."))
        return [(rng.choice(("", "Remember this: ")) + " ".join(said), heard)] + asks

    def recall_pair(self, frame):
        rng = self.rng
        while True:
            key = made_up(rng) if rng.random() < 0.15 and frame[3] is not NAMES \
                else rng.choice(frame[3])
            kind = frame[4]
            if kind == "age":
                value = str(rng.randint(3, 99))
            elif kind == "code":
                value = str(rng.randint(100, 9999))
            elif kind == "made up" or (rng.random() < 0.12 and kind is not NAMES):
                value = made_up(rng)
            else:
                value = rng.choice(kind)
            if key != value and self.mine("recall", frame[0], key, value):
                return key, value

    def my_name(self):
        """The user says a name or a liking, asks for something else, then asks for it back."""
        rng = self.rng
        name = rng.choice(NAMES) if rng.random() < 0.75 else made_up(rng).capitalize()
        colour, food = rng.choice(COLOURS), rng.choice(FOODS)
        turns, asked = rng.choice((
            ((self.casual(rng.choice((f"My name is {name}.", f"I am {name}.",
                                      f"Hello, my name is {name}.", f"Hi, I am {name}!"))),
              f"Nice to meet you, {{}}!"),
             (rng.choice(("What is my name?", "What's my name?", "Who am I?",
                          "Do you remember my name?")), f"Your name is {{}}.")),
            ((f"My favourite colour is {colour}.", f"{colour.capitalize()} is a lovely colour."),
             (rng.choice(("What is my favourite colour?", "Which colour do I like?")),
              f"Your favourite colour is {colour}.")),
            ((rng.choice((f"I like {food}.", f"My favourite food is {food}.")),
              rng.choice((f"I have heard that {food} can be very good.",
                          f"Enjoy your {food}!"))),
             (rng.choice(("What do I like?", "What is my favourite food?")), f"You like {food}.")),
        ))
        said = turns[0].rstrip(".!").split()[-1]
        between = self.one_turn() if rng.random() < 0.5 else []
        return [(turns[0], turns[1].format(said))] + between + [(asked[0], asked[1].format(said))]

    def talk(self):
        asks, answers = self.rng.choice(TALK)
        return [(self.casual(self.rng.choice(asks)), self.rng.choice(answers))]

    def fact(self):
        rng = self.rng
        if rng.random() < 0.04:
            country = rng.choice(OTHER_COUNTRIES)
            return [(self.casual(f"What is the capital of {country}?"),
                     "I am sorry, I do not know that capital.")]
        asks, answer = rng.choice(self.facts)
        ask = rng.choice(asks)
        if rng.random() < 0.3:
            ask = ask.replace("colour", "color")
        return [(self.casual(ask), answer)]

    def unknown(self):
        rng = self.rng
        if rng.random() < 0.25:
            return [(self.casual(rng.choice(UNKNOWN_REQUESTS)), rng.choice(UNKNOWN_ANSWERS))]
        topic = rng.choice(UNKNOWN_TOPICS) if rng.random() < 0.7 else self.word(0.7)
        answer = rng.choice(UNKNOWN_TOPIC_ANSWERS).format(topic) if rng.random() < 0.6 \
            else rng.choice(UNKNOWN_ANSWERS)
        return [(rng.choice(UNKNOWN_ASKS).format(topic), answer)]

    def tell(self):
        ask, text = asked_story(self.rng)
        turns = [(self.casual(ask), text)]
        if self.rng.random() < 0.05:
            turns.append((self.rng.choice(("Another one, please.", "Tell me another story.",
                                           "One more!", "Again!")), story(self.rng)))
        return turns

    def one_turn(self):
        return self.rng.choice((self.sums, self.talk, self.fact, self.counting, self.unknown,
                                self.copying))()

    SKILLS = (("sums", 20), ("recall", 18), ("fact", 14), ("copying", 16), ("tell", 11),
              ("counting", 10), ("talk", 8), ("unknown", 5), ("my_name", 4), ("next_number", 3),
              ("pick_words", 4), ("no_sums", 2))

    def chat(self):
        """A chat of one to four skills after each other, sometimes under a system message."""
        rng = self.rng
        names, weights = zip(*self.SKILLS)
        turns = []
        for name in rng.choices(names, weights, k=rng.choices((1, 2, 3, 4), (60, 22, 12, 6))[0]):
            turns += getattr(self, name)()
        system = rng.choice(SYSTEM_MESSAGES) if rng.random() < 0.15 else None
        return chat_document(turns, system)

    def plain(self):
        """Text without chat markers, for completion."""
        rng = self.rng
        r = rng.random()
        if r < 0.55:
            text = story(rng)
        elif r < 0.70:
            text = "\n".join(f"{ask} {answer}" for ask, answer in
                             (self.fact()[0] for _ in range(rng.randint(1, 3))))
        elif r < 0.80:
            text = self.counting()[0][1]
        elif r < 0.90:
            text = "\n".join(f"Question: {ask}\nAnswer: {answer}"
                             for ask, answer in self.sums() + self.fact())
        else:
            text = "\n".join(f"Question: {ask}\nAnswer: {answer}" for ask, answer in self.recall())
        return [(text + END_OF_TEXT, True)]

    def document(self):
        return self.plain() if self.rng.random() < 0.10 else self.chat()


def worked_sum(a, b):
    """The ones, the carry, the tens, then the answer: each step is one a small model can learn."""
    if a < 10 and b < 10:
        return f"{a} + {b} = {a + b}. The answer is {a + b}."
    ones = a % 10 + b % 10
    carry = ones // 10
    tens = a // 10 + b // 10 + carry
    return (f"Ones: {a % 10} + {b % 10} = {ones}, write {ones % 10}, carry {carry}. "
            f"Tens: {a // 10} + {b // 10} + {carry} = {tens}. The answer is {a + b}.")


def fill(pattern, key, value):
    return (pattern.replace("{k}", key).replace("{a_v}", an(value)).replace("{v}", value))


def chat_document(turns, system=None):
    """The same text as the chat template writes, cut at what is to be learned."""
    head = f"{IM_START}system\n{system}{IM_END}\n" if system else ""
    out = []
    for ask, answer in turns:
        out.append((f"{head}{IM_START}user\n{ask}{IM_END}\n{IM_START}assistant\n", False))
        out.append((answer + IM_END, True))
        head = "\n"
    out.append(("\n" + END_OF_TEXT, False))
    return out


if __name__ == "__main__":
    corpus = Corpus(0)
    for _ in range(20):
        print("".join(text for text, _ in corpus.document()))
        print("-" * 80)
