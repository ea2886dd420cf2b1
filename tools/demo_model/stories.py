"""A small story grammar: six plots, every slot with several wordings, 80 to 200 tokens each."""

import re

from words import (ADJECTIVES, ANIMALS, FOODS, GIRLS, NAMES, OUTDOORS, PEOPLE, TREASURES, an,
                   made_up, pronouns)

OPENINGS = (
    "Once upon a time there was {a_adj} {hero} called {name}. {He} lived near the {place}.",
    "Once upon a time {a_adj} {hero} lived by the {place}. {His} name was {name}.",
    "In a house near the {place} lived {a_adj} {hero}. Everybody called {him} {name}.",
    "There was once {a_adj} {hero} whose name was {name}. {His} home was close to the {place}.",
    "Long ago, not far from the {place}, there lived {a_adj} {hero} named {name}.",
)

MORNINGS = (
    "One morning", "One cold morning", "One day in spring", "One evening", "On a windy day",
    "On the first day of summer", "Early one day", "One rainy afternoon",
)

ENDINGS = (
    "From that day on, {name} and {friend} were the best of friends.",
    "That night {name} slept well and dreamed of the {place}.",
    "And if you walk past the {place} today, you may still see {name} and {friend} there.",
    "{name} smiled. It had been a very good day.",
    "And so the day ended, with a warm fire and a bowl of {food}.",
    "\"We should do this again,\" said {name}, and {friend} agreed.",
)

LOST = (
    ("{name} had {a_obj} that {he} loved more than anything.",
     "More than anything, {name} loved {his} old {obj}.",
     "{name} kept {a_obj} under {his} bed and looked at it every night."),
    ("{morning}, the {obj} was gone.",
     "{morning}, {name} could not find the {obj}."),
    ("{He} looked under the bed, behind the door and on the roof, but it was not there.",
     "{He} searched the house from top to bottom and found nothing but dust.",
     "{He} looked in every corner, and then {he} sat down and cried a little."),
    ("So {he} went out to the {place} to look for it.",
     "\"I will not give up,\" said {name}, and {he} walked to the {place}."),
    ("There {he} met {friend}, {a_fadj} {fhero}.",
     "On the way {he} met {a_fadj} {fhero} called {friend}."),
    ("\"Have you seen my {obj}?\" asked {name}.",
     "\"I have lost my {obj},\" said {name}. \"Can you help me?\""),
    ("\"No,\" said {friend}, \"but two pairs of eyes see more than one.\"",
     "\"I saw something shine in the grass,\" said {friend}. \"Come with me.\"",
     "\"Let us look together,\" said {friend}."),
    ("They looked all day, until the sun was low.",
     "They walked along the path and looked behind every stone."),
    ("At last {friend} pointed at an old tree. There, between the roots, lay the {obj}.",
     "At last they saw it: the {obj} was hanging from a branch, and the wind was playing with it.",
     "And there, under a heap of leaves, was the {obj}."),
    ("{name} was so happy that {he} danced.",
     "\"Thank you!\" cried {name}, and {he} gave {friend} some {food}."),
)

FRIEND = (
    ("{name} had many {food} but nobody to share them with.",
     "{name} was often alone, and the days were long.",
     "{name} wished for a friend more than for anything else."),
    ("{morning}, {he} heard a small voice near the {place}.",
     "{morning}, there was a knock at the door."),
    ("It was {friend}, {a_fadj} {fhero}, who was wet and cold.",
     "It was {a_fadj} {fhero} called {friend}, who had lost the way."),
    ("\"May I come in?\" asked {friend}.",
     "\"Please help me,\" said {friend}. \"I do not know where I am.\""),
    ("{name} was a little afraid at first, but {he} opened the door.",
     "{name} thought for a moment. Then {he} said, \"Of course. Come in.\"",
     "\"Sit by the fire,\" said {name}, and {he} made a pot of soup."),
    ("They ate {food} and told each other stories until late at night.",
     "They talked about the {place}, about the stars and about {food}.",
     "{friend} showed {name} {a_obj} and told {him} where it came from."),
    ("The next day they walked to the {place} together.",
     "In the morning the sun was shining, and they went out to play."),
    ("\"You have been kind to me,\" said {friend}. \"Take this {obj}. It is for you.\"",
     "\"I have never had a friend before,\" said {name}. \"Now you have one,\" said {friend}."),
)

STORM = (
    ("{morning}, dark clouds came over the {place}.",
     "{morning}, the wind began to blow, and it blew harder and harder."),
    ("The rain fell so hard that the path turned into a river.",
     "There was thunder, and the trees bent down to the ground."),
    ("{name} wanted to stay at home, but then {he} remembered {friend}, {a_fadj} {fhero}.",
     "{name} was safe in {his} house. But where was {friend}, the {fhero}?"),
    ("{He} took {his} {obj} and went out into the storm.",
     "\"I must go and help,\" said {name}, and {he} put on {his} coat and took {his} {obj}."),
    ("It was so dark that {he} could not see {his} own feet.",
     "Step by step {he} walked, and the wind pulled at {his} coat.",
     "{He} called as loud as {he} could, but only the wind answered."),
    ("At last {he} found {friend} under a fallen tree.",
     "Then {he} heard a faint voice. {friend} was sitting on a rock in the middle of the water."),
    ("\"Hold on to me,\" said {name}.",
     "\"Do not be afraid,\" said {name}. \"I am here.\"",
     "\"I knew that you would come,\" said {friend}."),
    ("With the help of the {obj} they found the way back.",
     "Slowly, hand in hand, they walked home."),
    ("When the storm was over, they drank hot tea and ate {food}.",
     "The next morning the sky was blue again, and everything smelled of rain."),
)

RACE = (
    ("Every year there was a race around the {place}.",
     "Once a year, everybody met at the {place} for a great race."),
    ("{friend}, {a_fadj} {fhero}, had won it three times.",
     "{friend} the {fhero} was the fastest of all, and very proud of it."),
    ("\"You are much too slow,\" said {friend}, and everybody laughed.",
     "\"Do not even try,\" said {friend} to {name}. \"You cannot win.\""),
    ("But {name} said nothing. Every day {he} got up early and ran.",
     "{name} only smiled, and every morning {he} ran up the hill and down again."),
    ("{morning}, the race began.",
     "Then the great day came. A bell rang, and they were off."),
    ("{friend} ran ahead and was soon out of sight.",
     "{friend} was so fast that {he2} stopped to eat some {food}."),
    ("{name} ran on and on, not fast, but without a rest.",
     "{name} did not look left or right. {He} just ran."),
    ("Near the end, {friend} fell over a root and could not get up.",
     "Just before the end, {friend} slipped and fell into the mud."),
    ("{name} could have won. But {he} stopped and held out {his} hand.",
     "{name} stopped. \"Are you hurt?\" {he} asked, and {he} helped {friend} up."),
    ("They crossed the line together, and the prize, {a_obj}, belonged to both of them.",
     "Side by side they reached the end, and everybody cheered."),
)

BUILD = (
    ("{name} wanted to make something that nobody had ever made before.",
     "{name} had a plan: {he} wanted to build a boat.",
     "{name} dreamed of a boat that could sail as far as the moon."),
    ("{morning}, {he} began to collect wood near the {place}.",
     "{morning}, {he} carried planks and nails down to the {place}."),
    ("\"What are you doing?\" asked {friend}, {a_fadj} {fhero}.",
     "{friend}, {a_fadj} {fhero}, came by and looked for a while."),
    ("\"I am building a boat,\" said {name}.",
     "\"It will be a boat,\" said {name}, \"and it will carry us both.\""),
    ("\"It looks like a table,\" said {friend}.",
     "\"It has a hole in it,\" said {friend}."),
    ("{name} was sad for a moment, but then {he} laughed. \"Then help me!\"",
     "\"Then show me how to do it better,\" said {name}."),
    ("They worked for seven days, and on each day they ate {food}.",
     "They worked day after day, and in the evenings they sang."),
    ("On the last day they hung {a_obj} on the mast, for luck.",
     "For a sail they took an old blanket, and at the top they put {a_obj}."),
    ("The boat did not sail as far as the moon, but it sailed around the lake, and that was enough.",
     "Then they pushed it into the water. It rocked, it creaked, and it swam."),
)

SECRET = (
    ("{morning}, {name} found {a_obj} in the grass.",
     "{morning}, {he} saw something shine in the sand. It was {a_obj}."),
    ("It was very old, and strange letters were written on it.",
     "It was covered with dust, and it was warm, as if it were alive."),
    ("{name} cleaned it with {his} sleeve. \"Who is there?\" asked a voice.",
     "When {name} touched it, it began to hum a song."),
    ("{name} ran to {friend}, {a_fadj} {fhero} who knew many things.",
     "{He} took it to {friend}, the {fhero}, who was old and wise."),
    ("\"This is the {obj} of the old king,\" said {friend}. \"It shows what you need most.\"",
     "\"I have read about this {obj},\" said {friend}. \"It was lost a hundred years ago.\""),
    ("They followed its light through the {place}, over a bridge and up a hill.",
     "All night they sat beside it and waited. Then it began to glow."),
    ("At the end of the path was a small door, and behind the door was a room full of books.",
     "It led them to a garden that nobody had seen for a very long time.",
     "It led them to an old well, and the water in it was as clear as glass."),
    ("\"I thought it would be gold,\" said {friend}. \"This is better,\" said {name}.",
     "\"We must tell everybody,\" said {name}, and that is what they did."),
    ("Since then the {place} has been a happy place, and there are always {food} for guests.",
     "They put the {obj} back where {name} had found it, so that somebody else could find it too."),
)

PLOTS = (LOST, FRIEND, STORM, RACE, BUILD, SECRET)


def story(rng, hero=None, obj=None, place=None, name=None):
    """The text of one story; what is given appears in it, the rest is drawn."""
    plot = rng.choice(PLOTS)
    name = name or rng.choice(NAMES)
    friend = rng.choice([n for n in NAMES if n != name])
    hero = hero or rng.choice(ANIMALS + PEOPLE)
    if hero in ("girl", "queen", "princess", "witch", "hen", "fairy") and name not in GIRLS:
        name = rng.choice([n for n in GIRLS if n != friend])
    if hero in ("boy", "king", "prince") and name in GIRLS:
        name = rng.choice([n for n in NAMES if n not in GIRLS and n != friend])
    obj = obj or rng.choice(TREASURES)
    he, his, him = pronouns(name)
    adj, fadj = rng.sample(ADJECTIVES, 2)
    field = {
        "name": name, "friend": friend, "hero": hero, "obj": obj, "a_obj": an(obj),
        "place": place or rng.choice(OUTDOORS), "food": rng.choice(FOODS[2:12]),
        "a_adj": an(adj), "a_fadj": an(fadj), "morning": rng.choice(MORNINGS),
        "fhero": rng.choice([a for a in ANIMALS if a != hero]),
        "he": he, "his": his, "him": him, "He": he.capitalize(), "His": his.capitalize(),
        "he2": pronouns(friend)[0],
    }
    parts = [rng.choice(OPENINGS)] + [rng.choice(slot) for slot in plot] + [rng.choice(ENDINGS)]
    paragraphs = [" ".join(parts[:1 + len(plot) // 2]), " ".join(parts[1 + len(plot) // 2:])]
    text = rng.choice((" ", " ", "\n\n")).join(paragraphs)
    return re.sub(r"\{(\w+)\}", lambda m: field[m.group(1)], text)


def asked_story(rng):
    """(request, story): what the request names appears in the story."""
    ask = rng.choice(("Tell me a story", "Tell me a short story", "Write a story",
                      "Write me a little story", "Can you tell me a story", "Please tell me a story",
                      "I would like to hear a story", "Make up a story", "Write a short story"))
    hero = rng.choice(ANIMALS + PEOPLE) if rng.random() < 0.88 else made_up(rng)
    obj = rng.choice(TREASURES) if rng.random() < 0.85 else made_up(rng)
    place, name = rng.choice(OUTDOORS), rng.choice(NAMES)
    end = "?" if ask.startswith("Can") else rng.choice((".", ".", ".", "!"))
    case = rng.random()
    if case < 0.25:
        return ask + end, story(rng)
    if case < 0.55:
        return f"{ask} about {an(hero)}{end}", story(rng, hero=hero)
    if case < 0.70:
        return f"{ask} about {an(hero)} and {an(obj)}{end}", _with_object(rng, hero, obj, None)
    if case < 0.80:
        return f"{ask} about the {place}{end}", story(rng, place=place)
    if case < 0.90:
        return f"{ask} about {an(hero)} at the {place}{end}", story(rng, hero=hero, place=place)
    hero = rng.choice(ANIMALS)
    return f"{ask} about {an(hero)} called {name}{end}", story(rng, hero=hero, name=name)


def _with_object(rng, hero, obj, place):
    """Not every wording of every plot names the object, so draw until one does."""
    while True:
        text = story(rng, hero=hero, obj=obj, place=place)
        if re.search(rf"\b{obj}\b", text):
            return text
