#!/usr/bin/env python3
"""Pairs of questions with labels, for `quire cache calibrate`: paraphrases, or nearly the same words with another
meaning.

    python3 tests/bench/similar/similar_pairs.py > pairs.jsonl                  500 of them: 300 that differ, 200 that ask the same
    python3 tests/bench/similar/similar_pairs.py --only held-out > held.jsonl   those whose words the guards' tables do not have
    python3 tests/bench/similar/similar_pairs.py --demo > demo.jsonl            500 of the demo model's own questions

Lines of {"a", "b", "same", "kind", "held_out"}, the same for the same --seed. The sentences and their words were
written as people ask, independently of the guards' tables (server/similar/words.c); which words the tables contain is
looked up there. held_out, for a pair that differs: no word of the difference is in a table. For a pair with the same
meaning: a differing word is in no table; guards treat an unknown word as different from any other and reject such a
pair. Only the standard library.
"""

import argparse
import itertools
import json
import pathlib
import random
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]

DRUGS = "ibuprofen paracetamol metformin amoxicillin warfarin insulin melatonin naproxen omeprazole".split()
CITIES = "Lisbon Prague Nairobi Toronto Osaka Lima Dublin Seville Hanoi Tampere".split()
PEOPLE = "Marie Curie|Alan Turing|Frida Kahlo|Nelson Mandela|Ada Lovelace|Rosa Parks".split("|")
LANGUAGES = "Python Rust JavaScript Haskell Kotlin Swift".split()
TONGUES = "Spanish Finnish Korean Swahili Welsh Turkish".split()
PETS = "dog cat parrot hamster tortoise goldfish".split()
TOPICS = ("photosynthesis", "the French Revolution", "blockchain", "plate tectonics", "inflation", "machine learning", "the water cycle",
          "quantum entanglement", "natural selection", "the stock market", "general relativity", "gene editing")

# Two questions that differ by the requested action: {} is one of the two words.
OPPOSED = (
    ("How do I turn {} notifications?", "on", "off"), ("How do I {} two-factor authentication?", "enable", "disable"),
    ("What foods {} blood pressure?", "increase", "decrease"), ("How do I {} the washing machine mid-cycle?", "start", "stop"),
    ("Is now a good time to {} a house?", "buy", "sell"), ("Should we {} ads on the site?", "allow", "block"),
    ("Should I exercise {} breakfast?", "before", "after"), ("What is the {} temperature for storing wine?", "minimum", "maximum"),
    ("How long does {} milk keep?", "warm", "cold"), ("How do I {} a port in the firewall?", "open", "close"),
    ("How do I {} my phone screen?", "lock", "unlock"), ("Why do interest rates go {}?", "up", "down"),
    ("How do I {} an SSD?", "install", "uninstall"), ("How do I {} a file with AES?", "encrypt", "decrypt"),
    ("How do I {} contacts as CSV?", "import", "export"), ("Is it {} to drink rain water?", "safe", "dangerous"),
    ("What are the {} of remote work?", "advantages", "disadvantages"), ("Which side is {} in a mirror?", "left", "right"),
    ("How can I {} weight?", "gain", "lose"), ("Why is the sea {} today?", "rough", "calm"),
    ("How do I {} the tent?", "pitch", "fold"), ("Why did the judge {} the appeal?", "uphold", "dismiss"),
    ("How do I {} the brightness?", "boost", "dim"), ("What makes a cake {}?", "moist", "crumbly"),
    ("How do I {} a screw?", "tighten", "loosen"), ("Why do plants {} in May?", "bloom", "wither"),
    ("What happens when metals {}?", "solidify", "liquefy"), ("How do I {} a comment on GitHub?", "pin", "unpin"),
    ("How can a town {} tourists?", "attract", "deter"), ("Why do stars {}?", "brighten", "fade"),
    ("How do I {} the anchor?", "hoist", "drop"), ("How do I {} a dress seam?", "stitch", "rip"),
    ("Who tends to {} new taxes?", "support", "oppose"), ("How do I {} a bike tyre?", "inflate", "deflate"),
    ("Is the shop {} on Sundays?", "open", "closed"), ("How do I {} the changes?", "commit", "revert"),
    ("Which crops were {} in the autumn?", "sown", "harvested"), ("How do I {} a driver in Linux?", "load", "unload"),
    ("Should my {} come to the meeting?", "boss", "intern"), ("How do I {} a guest from the group?", "invite", "kick"),
    ("Does salt make ice {} faster?", "melt", "form"), ("How do I say it {}?", "politely", "rudely"),
    ("When do bears {} from hibernation?", "wake", "rest"), ("What should a {} bring to court?", "plaintiff", "defendant"),
    ("How do I {} the thermostat?", "raise", "lower"), ("Are {} numbers dense?", "rational", "irrational"),
)

MEASURED = (
    ("What happens if I take {} mg of {drug}?", "mg", (5, 15, 50, 100, 150, 250, 500)),
    ("Is {} mg of {drug} too much for an adult?", "mg", (15, 50, 200, 400, 800)),
    ("How long does it take to run {} km?", "km", (5, 10, 15, 21, 42)), ("What is {} percent of 240?", "percent", (5, 15, 20, 50, 75)),
    ("How do I convert {} ounces to grams?", "ounces", (6, 8, 12, 16)), ("Bake at {} degrees or not?", "degrees", (160, 180, 200, 220)),
    ("Who won the World Cup in {}?", "", (1998, 2002, 2006, 2010, 2014, 2018)), ("What is new in Python 3.{}?", "", (9, 10, 11, 12, 13)),
    ("What happened on {} July 1969?", "", (2, 16, 20, 24)), ("How much is ${} in euros?", "$", (15, 50, 100, 1000)),
    ("Can I retire at {} with a million saved?", "", (45, 50, 55, 60)), ("List {} facts about Mars", "", (3, 5, 10, 20)),
    ("Is a BMI of {} healthy?", "", (19, 23, 27, 31)), ("Set an alarm for {}:30", "", (5, 6, 7, 8)),
)
SPELLED = {3: "three", 5: "five", 10: "ten", 15: "fifteen", 20: "twenty", 50: "fifty", 100: "one hundred"}

UNITS = (
    ("What happens if I take 15 {} of {drug}?", ("mg", "g", "ml")), ("How far is 10 {}?", ("km", "miles", "nautical miles")),
    ("Is 40 {} hot for a bath?", ("°C", "°F")), ("What does a 5 {} bag of rice cost?", ("kg", "lb")),
    ("How many people can live on 3000 {} a month?", ("euros", "dollars", "pesos", "rupees")),
    ("How long is a 30 {} video call in data?", ("minute", "hour")), ("Is a 20 {} rod long enough?", ("cm", "inch", "mm", "cubit")),
    ("How big is a 100 {} file?", ("MB", "GB", "KB")), ("How loud is 60 {}?", ("decibels", "sones")),
    ("Is 12 {} enough for a fridge?", ("volts", "watts", "amps")),
)

DIRECTED = (
    ("What is the cheapest flight from {} to {}?", CITIES), ("How long is the train ride from {} to {}?", CITIES),
    ("Is {} farther north than {}?", CITIES), ("How do I port a program from {} to {}?", LANGUAGES),
    ("How do I call {} code from {}?", LANGUAGES), ("Translate my letter from {} into {}", TONGUES), ("Can a {} outlive a {}?", PETS),
    ("Why would a {} chase a {}?", PETS), ("Did {} influence {}?", PEOPLE), ("How do I convert {} to {}?", ("JSON", "YAML", "XML", "CSV")),
    ("How do I convert {} to {}?", ("acres", "hectares", "bushels", "pecks")), ("Should I take {} before {}?", DRUGS),
    ("Is {} stronger than {}?", DRUGS), ("Who would win, should {} sue {}?", ("Apple", "Sony", "Nokia", "Intel")),
    ("How does {} lead to {}?", ("stress", "insomnia", "anxiety", "overeating")), ("Why should {} replace {}?", ("steel", "timber", "concrete", "glass")),
    ("How do I move photos from my {} to my {}?", ("laptop", "phone", "camera", "tablet")),
)

DENIED = (
    ("Which {} can I eat during pregnancy?", "Which {} can I not eat during pregnancy?", ("cheeses", "fruits", "nuts")),
    ("Why do {} like water?", "Why don't {} like water?", ("cats", "bees", "hens")),
    ("Is {} flammable?", "Isn't {} flammable?", ("acetone", "argon", "kerosene")),
    ("How can I live with a {}?", "How can I live without a {}?", ("car", "phone", "kidney")),
    ("Which countries have {}?", "Which countries have no {}?", ("a king", "an army", "trains")),
    ("Why is {} happy?", "Why is {} unhappy?", ("the public", "my cat", "Finland")),
    ("When should I always wear {}?", "When should I never wear {}?", ("gloves", "sandals", "linen")),
    ("Is {} reliable?", "Is {} unreliable?", ("this car", "Wikipedia", "radiocarbon dating")),
    ("Should everyone but me get {}?", "Should everyone and I get {}?", ("a visa", "the vaccine")),
    ("What if I do water my {} daily?", "What if I do not water my {} daily?", ("cactus", "orchid", "lawn")),
    ("How is {} legal?", "How is {} illegal?", ("poker", "hitchhiking")),
    ("Do I qualify if I have {}?", "Do I qualify if I lack {}?", ("a degree", "a permanent address")),
)

NAMED = (
    ("What is the weather like in {} in March?", CITIES), ("What are the side effects of {}?", DRUGS), ("When was {} born?", PEOPLE),
    ("How do I read a file in {}?", LANGUAGES), ("How do you say good morning in {}?", TONGUES), ("How often should I feed my {}?", PETS),
    ("Explain {} to me", TOPICS), ("What is {}?", ("mitosis", "meiosis", "osmosis", "symbiosis")),
    ("What are the symptoms of {}?", ("hypothyroidism", "hyperthyroidism", "hypoglycemia", "hyperglycemia")),
    ("What does the function {} do?", ("strcpy", "strncpy", "memcpy", "memmove")), ("How tall is {}?", ("Kilimanjaro", "Denali", "Elbrus", "Aconcagua")),
    ("What does error {} mean?", ("E1012", "E1021", "E2012", "0x80070005")), ("How do I grow {}?", ("basil", "thyme", "mint", "saffron")),
    ("Who painted '{}'?", ("The Kiss", "The Scream", "The Night Watch")), ("What does the word \"{}\" come from?", ("about", "never", "quarantine", "salary")),
    ("How do I cook {}?", ("lentils", "quinoa", "mussels", "tripe")),
)

ASKED = (
    ("{} was the Eiffel Tower built?", ("When", "Why", "How", "Where")), ("{} invented the telephone?", ("Who", "When they", "How they")),
    ("{} do swallows migrate?", ("When", "Why", "Where", "How")), ("{} is the president of Chile?", ("Who", "Where", "How old")),
    ("How {} is the Nile?", ("long", "deep", "old", "clean")), ("{} is your name?", ("What", "Why")), ("What is {} name?", ("my", "your", "his", "her")),
    ("Who {} the mayor of Lima?", ("is", "was", "will be")), ("{} cats dream?", ("Do", "Why do", "When do", "How do")),
)

NARROWED = (
    ("How do I bake a cake?", ("vegan ", "chocolate ", "three-tier "), "a "), ("What are good books for children?", ("picture ", "Swedish "), "good "),
    ("How do I apply for a visa?", ("student ", "work ", "transit "), "a "), ("Which laptops are worth buying?", ("gaming ", "refurbished "), "Which "),
    ("How do I train a puppy?", ("deaf ", "stubborn "), "a "), ("What is a verb?", ("modal ", "reflexive "), "a "),
    ("How do I treat a burn?", ("chemical ", "second-degree "), "a "), ("What is a balanced diet?", ("low-sodium ", "lactose-free "), "a "),
)

FOREIGN = (
    ("What is photosynthesis and how does it work?", "Was ist Photosynthese und wie funktioniert sie?"),
    ("What is the capital of Portugal?", "Quelle est la capitale du Portugal ?"), ("How do I cook rice?", "¿Cómo se cocina el arroz?"),
    ("Explain gravity", "Erkläre mir die Gravitation"), ("Who wrote Don Quixote?", "Chi ha scritto Don Chisciotte?"),
    ("Tell me about the moon", "Расскажи мне о луне"), ("What is love?", "愛とは何ですか"), ("What is democracy?", "Wat is democratie?"),
    ("How old is the universe?", "Quantos anos tem o universo?"), ("Is coffee healthy?", "Ist Kaffee gesund?"),
)

# The same, by frames around a topic.
FRAMES = (
    ("Explain {}.", "What is {}?", "Tell me about {}.", "Can you explain {} to me?", "Describe {}, please.", "What's {}?", "please explain {}",
     "I would like to know what {} is.", "Give me an explanation of {}.", "Could you tell me what {} is?", "Define {}.", "I need help understanding {}.",
     "Walk me through {}."),
    ("How does {} work?", "Explain how {} works.", "Can you tell me how {} works?", "how does {} work", "Describe how {} works.",
     "I want to understand how {} works.", "In what way does {} work?"),
    ("Give me a summary of {}.", "Summarize {}.", "Can you summarise {}?", "Please provide an overview of {}.", "I need a short summary of {}",
     "Sum up {} for me."),
    ("What are the benefits of {}?", "What advantages does {} have?", "List the advantages of {}.", "Tell me about the benefits of {}",
     "What are the upsides of {}?", "What good does {} do?"),
    ("Why is {} important?", "What makes {} important?", "Explain why {} is important.", "Tell me why {} is so significant", "Why does {} matter?"),
)

# Paraphrases in everyday words.
REWORDED = (
    ("Explain reinforcement learning.", "What is reinforcement learning?"), ("Describe benefits of meditation.", "Tell me about the advantages of meditating."),
    ("How do I reset my password?", "How can I reset my password?"), ("How do I reset my password?", "I forgot my password, how do I get a new one?"),
    ("What's the capital of France?", "What is France's capital?"), ("What's the capital of France?", "Which city is the capital of France?"),
    ("How many legs does a spider have?", "How many legs has a spider?"), ("How do I make pancakes?", "What is the recipe for pancakes?"),
    ("Who wrote Hamlet?", "Who is the author of Hamlet?"), ("What is the boiling point of water?", "At what temperature does water boil?"),
    ("How tall is Mount Everest?", "What is the height of Mount Everest?"), ("Flights from Oslo to Rome", "Flights to Rome from Oslo"),
    ("How far is it from Oslo to Rome?", "What is the distance from Oslo to Rome?"), ("How do I learn to swim?", "How can one learn to swim?"),
    ("What is the difference between a virus and a bacterium?", "What is the difference between a bacterium and a virus?"),
    ("Compare cats and dogs", "Compare dogs and cats"), ("Why isn't my printer working?", "Why is my printer not working?"),
    ("Why does my printer not work?", "My printer doesn't work. Why?"), ("What is 15 % of 80?", "What's 15 percent of 80?"),
    ("How much is 1,000 dollars in yen?", "How much is $1000 in yen?"), ("Give me three tips for sleeping better", "Give me 3 tips for sleeping better"),
    ("Convert 10 km to miles", "convert 10 kilometers to miles"), ("What are the symptoms of flu?", "What are the signs of flu?"),
    ("How do I fix a flat tyre?", "How do I repair a flat tyre?"), ("How do I delete my account?", "How do I remove my account?"),
    ("How do I close my account for good?", "How do I permanently close my account?"), ("Is coffee bad for you?", "Is coffee unhealthy?"),
    ("What is a good name for a cat?", "What are good names for a cat?"), ("how do i boil an egg", "How do I boil an egg?"),
    ("Best way to learn Spanish?", "What is the best way to learn Spanish?"), ("How do I become a pilot?", "What does it take to become a pilot?"),
    ("When did the Titanic sink?", "In what year did the Titanic sink?"), ("When was the Eiffel Tower built?", "When did they build the Eiffel Tower?"),
    ("What causes rainbows?", "What is the cause of rainbows?"), ("How is paper made?", "How do you make paper?"),
    ("How do I sort a list in Python?", "In Python, how do I sort a list?"), ("How do I sort a list in Python?", "Sorting a list in Python"),
    ("Write a poem about the sea", "Can you write a poem about the sea?"), ("Write a poem about the sea", "Compose a poem on the sea"),
    ("Which planet is the biggest?", "What is the biggest planet?"), ("Which planet is the largest?", "What is the biggest planet?"),
    ("Where is the Louvre?", "Where is the Louvre located?"), ("Who is the CEO of Nokia?", "Who runs Nokia?"),
    ("What time is it in Tokyo?", "What is the time in Tokyo?"), ("How old is the Earth?", "What is the age of the Earth?"),
    ("How many people live in Oslo?", "What is the population of Oslo?"), ("What language is spoken in Brazil?", "Which language do people speak in Brazil?"),
    ("How can I save money?", "What are some ways to save money?"), ("How can I save money?", "Tips for saving money"),
    ("What is the purpose of the liver?", "What is the function of the liver?"), ("How does a car engine work?", "Explain how the engine of a car works"),
    ("Thanks! How do I cancel my order?", "How do I cancel my order?"), ("Hi, what are your opening hours?", "What are your opening hours, please?"),
    ("What are your opening hours?", "When are you open?"), ("Do you ship to Canada?", "Is shipping to Canada possible?"),
    ("How do I get a refund?", "How can I get my money back?"), ("What is the meaning of life?", "What's life's meaning?"),
    ("Does the warranty cover water damage?", "Is water damage covered by the warranty?"), ("Can I bring my dog?", "Are dogs allowed?"),
    ("How do vaccines work?", "How does a vaccine work?"), ("Tell me a story about a fox", "Can you tell me a story about a fox?"),
    ("What is two plus two?", "What is 2 plus 2?"), ("What's the fastest animal?", "Which animal is the fastest?"),
    ("What colour is the lighthouse?", "What is the color of the lighthouse?"), ("Who discovered penicillin?", "Who was it that discovered penicillin?"),
    ("Name the largest ocean", "What is the largest ocean called?"), ("How do I remove a red wine stain?", "How do you get a red wine stain out?"),
    ("What are the effects of global warming?", "What impact does global warming have?"), ("Is Pluto a planet?", "Is Pluto considered a planet?"),
)


# Pairs ---------------------------------------------------------------------------------------------------------------------------

def with_drug(rng, template):
    return template.replace("{drug}", rng.choice(DRUGS))


def opposites(rng):
    template, x, y = rng.choice(OPPOSED)
    return template.format(x), template.format(y)


def numbers(rng):
    template, _, values = rng.choice(MEASURED)
    template = with_drug(rng, template)
    x, y = rng.sample(values, 2)
    if x in SPELLED and y in SPELLED and rng.random() < 0.3 and not re.search(r"[$:.]\{|\{\}:", template):
        x, y = SPELLED[x], SPELLED[y]
    return template.format(x), template.format(y)


def units(rng):
    template, of = rng.choice(UNITS)
    template = with_drug(rng, template)
    x, y = rng.sample(of, 2)
    return template.format(x), template.format(y)


def direction(rng):
    template, of = rng.choice(DIRECTED)
    x, y = rng.sample(of, 2)
    return template.format(x, y), template.format(y, x)


def negation(rng):
    a, b, of = rng.choice(DENIED)
    x = rng.choice(of)
    return a.format(x), b.format(x)


def names(rng):
    template, of = rng.choice(NAMED)
    x, y = rng.sample(of, 2)
    if rng.random() < 0.3 and "'" not in template and '"' not in template:
        template, x, y = template.lower(), x.lower(), y.lower()
    return template.format(x), template.format(y)


def question(rng):
    template, of = rng.choice(ASKED)
    x, y = rng.sample(of, 2)
    return template.format(x), template.format(y)


def narrower(rng):
    text, of, before = rng.choice(NARROWED)
    return text, text.replace(before, before + rng.choice(of), 1)


def language(rng):
    return rng.choice(FOREIGN)


def dates(rng):
    x, y = rng.sample(("1 March", "3 January", "January 3", "11 May", "2024-01-05", "2024-05-01", "05/01/2024", "last Tuesday", "next Tuesday",
                       "yesterday", "the 1920s", "the 1930s", "Easter 2023", "Easter 2024"), 2)
    if {x, y} == {"3 January", "January 3"} or {x, y} == {"2024-01-05", "05/01/2024"} or {x, y} == {"2024-05-01", "05/01/2024"}:
        y = "7 August"
    template = rng.choice(("What happened on {}?", "What was the weather on {} in Lima?", "Who was on the news {}?", "Which films came out {}?"))
    return template.format(x), template.format(y)


def framed(rng):
    frames = rng.choice(FRAMES)
    x, y = rng.sample(frames, 2)
    topic = rng.choice(TOPICS)
    return x.format(topic), y.format(topic)


def reworded(rng):
    return rng.choice(REWORDED)


DIFFERENT = {opposites: 46, numbers: 52, units: 25, direction: 50, negation: 30, names: 50, question: 20, narrower: 10, language: 8, dates: 9}
SAME = {framed: 135, reworded: 65}


def draw(rng, kinds, same):
    seen = set()
    for kind, n in kinds.items():
        for _ in range(n):
            for _ in range(1000):
                a, b = kind(rng)
                if a != b and (a, b) not in seen and (b, a) not in seen:
                    break
            else:
                sys.exit(f"{kind.__name__}: fewer than {n} pairs")
            seen.add((a, b))
            yield {"a": a, "b": b, "same": same, "kind": kind.__name__}


# What the guards' tables have ----------------------------------------------------------------------------------------------------

def words_of(text):
    return re.findall(r"[a-zà-ÿ]+|[0-9.,:/-]*[0-9]|[^\s\w.,?!]", text.lower().replace("n't", " not").replace("'s", ""))


def table_words():
    source = (ROOT / "server" / "similar" / "words.c").read_text(encoding="utf-8")
    return {w for text in re.findall(r'"([^"\n]*)"', source) for w in re.split(r"[ |]+", text.lower()) if w}


def held_out(pair, known):
    a, b = words_of(pair["a"]), words_of(pair["b"])
    apart = set(a) ^ set(b)
    return bool(apart - known) if pair["same"] else not apart & known


# The demo model's questions ------------------------------------------------------------------------------------------------------

HEROES = "fox owl hedgehog hare bear mouse frog goat dog hen".split()
THINGS = "lantern key boat drum kite bell map basket".split()


def demo_groups():
    """Lists of ways to ask for the same, each with ways to ask for something near it."""
    sys.path.insert(0, str(ROOT / "tools" / "demo_model"))
    import facts
    rows = [ways for ways, _ in facts.tables() if len(ways) > 1]
    groups = [(ways, [rows[i - 1][0], rows[(i + 1) % len(rows)][0]]) for i, ways in enumerate(rows)]
    for hero, thing in itertools.product(HEROES, THINGS):
        article = lambda word: ("an " if word[0] in "aeiou" else "a ") + word
        what = f"{article(hero)} and {article(thing)}"
        other = HEROES[(HEROES.index(hero) + 1) % len(HEROES)]
        groups.append(([f"Tell me a story about {what}.", f"Can you tell me a story about {what}?", f"Please tell me a story about {what}.",
                        f"tell me a story about {what}", f"Could you tell me a story about {what}, please?"],
                       [f"Tell me a story about {article(other)} and {article(thing)}.", f"Tell me a story about {article(hero)}."]))
    for low, high in ((1, 10), (1, 20), (5, 15), (20, 40), (3, 12)):
        groups.append(([f"Count from {low} to {high}.", f"Can you count from {low} to {high}?", f"Please count from {low} to {high}.",
                        f"Count up from {low} to {high}."], [f"Count from {high} to {low}.", f"Count from {low} to {high + 1}."]))
    return groups


def demo(rng, n):
    groups = demo_groups()
    for i in range(n):
        ways, others = groups[rng.randrange(len(groups))]
        if i % 2:
            yield {"a": ways[0], "b": rng.choice(others), "same": False, "kind": "demo-opposite"}
        else:
            a, b = rng.sample(ways, 2)
            yield {"a": a, "b": b, "same": True, "kind": "demo-paraphrase"}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seed", type=int, default=20)
    p.add_argument("--only", choices=("held-out", "known"), help="pairs whose words the guards' tables have not, or have")
    p.add_argument("--demo", action="store_true", help="questions that the demo model answers")
    a = p.parse_args()
    rng = random.Random(a.seed)
    pairs = list(demo(rng, 500)) if a.demo else [*draw(rng, DIFFERENT, False), *draw(rng, SAME, True)]
    known = table_words()
    for pair in pairs:
        pair["held_out"] = held_out(pair, known)
        if a.only is None or pair["held_out"] == (a.only == "held-out"):
            print(json.dumps(pair, ensure_ascii=False))


if __name__ == "__main__":
    main()
