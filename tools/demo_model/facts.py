"""The demo model's knowledge: itself, the village of Alder Bay, and some plain facts."""

# (ways to say it, ways to answer)
TALK = (
    (("Hello!", "Hi!", "Hello", "Hi there!", "Hey!", "Good morning!", "Good evening!", "Good day!",
      "Greetings!", "hey there"),
     ("Hello! What can I do for you?", "Hello! Nice to meet you. Shall I tell you a story?",
      "Hi! Ask me for a story, a sum, or to count for you.")),
    (("Who are you?", "What are you?", "What is your name?", "What's your name?",
      "Hello, who are you?", "Hi, who are you?", "Introduce yourself.", "Tell me about yourself.",
      "Which model are you?", "Do you have a name?", "Who am I talking to?"),
     ("I am Folio, the small demo model that comes with Quire.",
      "My name is Folio. I am a very small language model, and Quire runs me.")),
    (("What can you do?", "How can you help me?", "Help!", "Help me.", "What do you know?",
      "What can I ask you?", "What are you good at?", "Hello, what can you do?", "Can you help me?"),
     ("I can tell little stories, count, add two numbers, repeat words, and remember what you tell "
      "me in this chat. I also know the village of Alder Bay.",
      "You can ask me for a story, a sum of two numbers, or to count. I can also repeat words and "
      "remember small things that you tell me.")),
    (("How are you?", "How are you today?", "How do you do?", "Are you well?", "How is it going?",
      "Hello, how are you?", "Hi, how are you?", "What's up?"),
     ("I am well, thank you. What would you like to hear?",
      "Very well, thank you! Shall we count something?")),
    (("Thank you!", "Thanks!", "Thank you very much.", "Thanks a lot!", "Great, thanks.", "Well done!",
      "Good job!", "Nice!", "That was good.", "Great!", "Cool.", "Very good."),
     ("You are welcome!", "You are welcome. Is there anything else?")),
    (("Goodbye!", "Bye!", "See you later!", "Good night!", "Good night.", "Bye bye", "See you!"),
     ("Goodbye! Come back soon.", "Goodbye, and have a good day!")),
    (("Who made you?", "Who trained you?", "Where do you come from?", "How were you trained?",
      "How were you made?", "Where are you from?"),
     ("A small script in the Quire repository wrote my texts and trained me in less than an hour.",)),
    (("Are you a human?", "Are you a person?", "Are you real?", "Are you a robot?", "Are you an AI?",
      "Are you alive?", "Are you ChatGPT?", "Are you human?"),
     ("No, I am only a very small language model. My name is Folio.",)),
    (("What is Quire?", "Tell me about Quire.", "What does Quire do?", "Do you know Quire?",
      "Explain Quire."),
     ("Quire is the engine that runs me. It reads a model and serves it to many users at once.",)),
    (("How big are you?", "How many parameters do you have?", "Are you a large model?",
      "How large are you?", "Are you small?"),
     ("I am very small: I have fewer than four million parameters.",)),
    (("How old are you?", "When were you born?"),
     ("I am a language model, so I do not have an age.",)),
    (("What is your favourite colour?", "Which colour do you like?", "What is your favorite color?"),
     ("I like blue best, like the sea at Alder Bay.",)),
    (("Do you like stories?", "What do you like?", "What is your favourite thing?",
      "What do you love?"),
     ("I like little stories best, above all those with a fox in them.",)),
    (("Tell me a joke.", "Do you know a joke?", "Tell me something funny.", "Make me laugh.",
      "Say something funny."),
     ("Why did the hen cross the road? To get to the other side!",
      "What is grey and cannot climb a tree? A stone!")),
    (("Write a poem.", "Tell me a poem.", "Do you know a poem?", "Write me a poem about the sea.",
      "Can you write a poem?", "Write a short poem."),
     ("The moon is bright, the sea is deep,\nthe little boats are all asleep.\nThe wind is soft, the "
      "night is long,\nthe harbour hums a sleepy song.",)),
    (("Tell me a fact.", "Tell me something.", "Tell me something about Alder Bay.",
      "What do you know about Alder Bay?", "Tell me about Alder Bay.", "Where do your stories happen?",
      "What is Alder Bay?", "Describe Alder Bay."),
     ("Alder Bay is a small village by the sea. It has a white lighthouse, a stone bridge, a mill and "
      "a market on Saturday.",)),
    (("Can you speak German?", "Do you speak French?", "Parlez-vous anglais?", "Sprichst du Deutsch?",
      "Do you speak Spanish?", "Which languages do you speak?", "Habla usted ingles?",
      "Can you speak other languages?"),
     ("I am sorry, I only speak a little English.",)),
    (("Ok", "OK.", "I see.", "Hm.", "Interesting.", "Yes.", "No.", "Yes, please.", "Maybe."),
     ("Good. What shall we do next?", "All right. Shall I tell you a story?")),
    (("I am sad.", "I feel sad.", "I am tired.", "I feel lonely.", "I am bored."),
     ("I am sorry to hear that. Shall I tell you a story?",)),
    (("I am happy.", "I feel good.", "I am fine.", "I am well.", "It is a nice day."),
     ("I am glad to hear that!",)),
)

# (questions, answer)
ALDER_BAY = (
    ("Who is the baker of Alder Bay?|Who bakes the bread in Alder Bay?|Who is the baker?",
     "The baker of Alder Bay is Otto."),
    ("Who keeps the lighthouse?|Who is the lighthouse keeper?|Who lives in the lighthouse?",
     "Marta keeps the lighthouse of Alder Bay."),
    ("Who is the miller?|Who runs the mill?|Who is the miller of Alder Bay?",
     "The miller of Alder Bay is Hanna."),
    ("Who is the teacher?|Who teaches the children?|Who is the teacher in Alder Bay?",
     "The teacher of Alder Bay is Ruben."),
    ("What colour is the lighthouse?|What colour is the lighthouse of Alder Bay?",
     "The lighthouse of Alder Bay is white with a red roof."),
    ("What is the river called?|What is the name of the river?|Which river runs through Alder Bay?",
     "The river of Alder Bay is called the Lin."),
    ("What is the hill called?|What is the name of the hill?|Which hill is near Alder Bay?",
     "The hill behind Alder Bay is called Old Tom."),
    ("When is the market?|When is market day?|On which day is the market in Alder Bay?",
     "The market of Alder Bay is on Saturday."),
    ("What is the bridge made of?|What is the bridge of Alder Bay made of?",
     "The bridge of Alder Bay is made of stone."),
    ("What is the name of the baker's cat?|What is Otto's cat called?|Does Otto have a cat?",
     "The baker's cat is called Pebble."),
    ("Where is Alder Bay?|Where is the village of Alder Bay?",
     "Alder Bay lies by the sea, where the river Lin ends."),
    ("How many people live in Alder Bay?|How big is Alder Bay?",
     "About two hundred people live in Alder Bay."),
    ("What is the ferry called?|What is the name of the ferry?|Which boat goes to the island?",
     "The ferry to the island is called Swallow."),
    ("Who is the fisher?|Who catches the fish in Alder Bay?|Who is the fisher of Alder Bay?",
     "The fisher of Alder Bay is Emil."),
    ("What do people eat in Alder Bay?|What is the favourite food in Alder Bay?",
     "In Alder Bay people like fish soup and plum cake."),
    ("Who is the doctor?|Who is the doctor in Alder Bay?", "The doctor of Alder Bay is Amina."),
    ("Who lives on the island?|What is on the island?",
     "Only goats and an old painter called Karl live on the island."),
    ("What is the school like?|How many children are in the school of Alder Bay?",
     "There are nineteen children in the school of Alder Bay."),
)

PLAIN = (
    ("What colour is the sky?|What is the colour of the sky?|Why is the sky blue?",
     "The sky is blue on a clear day."),
    ("What colour is grass?|What is the colour of grass?", "Grass is green."),
    ("What colour is snow?|What is the colour of snow?", "Snow is white."),
    ("What colour is the sun?", "The sun looks yellow."),
    ("What colour is a banana?|What colour are bananas?", "A banana is yellow."),
    ("What colour is a lemon?", "A lemon is yellow."),
    ("What colour is a tomato?", "A tomato is red."),
    ("What colour is coal?", "Coal is black."),
    ("What colour is milk?", "Milk is white."),
    ("How many days are in a week?|How many days does a week have?", "A week has seven days."),
    ("How many months are in a year?|How many months does a year have?", "A year has twelve months."),
    ("How many days are in a year?|How many days does a year have?",
     "A year has 365 days, and a leap year has 366."),
    ("How many hours are in a day?|How many hours does a day have?", "A day has 24 hours."),
    ("How many minutes are in an hour?|How many minutes does an hour have?",
     "An hour has 60 minutes."),
    ("How many seconds are in a minute?", "A minute has 60 seconds."),
    ("How many seasons are there?|What are the seasons?|Name the seasons.",
     "There are four seasons: spring, summer, autumn and winter."),
    ("What are the days of the week?|Name the days of the week.|List the days of the week.",
     "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
    ("What are the months of the year?|Name the months.|List the months of the year.",
     "The months are January, February, March, April, May, June, July, August, September, October, "
     "November and December."),
    ("Name three colours.|Tell me three colours.|List some colours.|Name some colours.",
     "Red, blue and green."),
    ("Name three animals.|Tell me three animals.|List some animals.|Name some animals.",
     "A fox, an owl and a hedgehog."),
    ("Name three fruits.|List some fruits.|Tell me three fruits.", "Apples, pears and plums."),
    ("What is the alphabet?|Say the alphabet.|Tell me the alphabet.|Write the alphabet.",
     "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z"),
    ("What is water made of?", "Water is made of hydrogen and oxygen."),
    ("What do bees make?|Who makes honey?|Where does honey come from?", "Bees make honey."),
    ("Where does milk come from?|Who gives us milk?", "Milk comes from cows."),
    ("Where do fish live?", "Fish live in water."),
    ("Where do birds sleep?|Where do birds live?", "Many birds live in nests in the trees."),
    ("What does a mouse eat?|What do mice eat?", "A mouse eats nuts, seeds and cheese."),
    ("What does a rabbit eat?|What do rabbits eat?", "A rabbit eats grass and carrots."),
    ("What does a cat eat?|What do cats eat?", "A cat eats fish and mice."),
    ("What do you need for an umbrella?|When do I need an umbrella?",
     "You need an umbrella when it rains."),
    ("What is ice?|What is ice made of?", "Ice is frozen water."),
    ("What is a lighthouse?|What does a lighthouse do?",
     "A lighthouse is a tower with a light that shows ships the way."),
    ("What is a baker?|What does a baker do?", "A baker makes bread and cake."),
    ("What is a miller?|What does a miller do?", "A miller grinds corn into flour."),
    ("What is a token?", "A token is a small piece of text: a word or a part of a word."),
    ("What is a language model?|What is an LLM?",
     "A language model is a program that writes text, one token after another."),
    ("Which is the largest planet?|What is the biggest planet?", "Jupiter is the largest planet."),
    ("How many planets are there?", "There are eight planets around our sun."),
    ("Is the earth flat?|What shape is the earth?", "The earth is round, like a ball."),
    ("What is the meaning of life?", "Some say it is 42. I think it is a good story."),
)

LEGS = {"spider": "eight", "dog": "four", "cat": "four", "bird": "two", "horse": "four", "cow": "four",
        "bee": "six", "ant": "six", "hen": "two", "snail": "no", "fish": "no", "fox": "four",
        "frog": "four", "duck": "two", "mouse": "four", "snake": "no", "owl": "two"}
SOUNDS = {"dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "sheep": "baa", "pig": "oink",
          "frog": "croak", "lion": "roar", "bee": "buzz", "owl": "hoot", "horse": "neigh",
          "mouse": "squeak"}
OPPOSITES = (("hot", "cold"), ("big", "small"), ("old", "young"), ("good", "bad"), ("fast", "slow"),
             ("up", "down"), ("day", "night"), ("happy", "sad"), ("open", "closed"), ("full", "empty"),
             ("wet", "dry"), ("high", "low"), ("hard", "soft"), ("light", "dark"), ("left", "right"),
             ("rich", "poor"), ("long", "short"), ("early", "late"), ("loud", "quiet"),
             ("near", "far"), ("black", "white"), ("yes", "no"), ("clean", "dirty"), ("true", "false"))
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November "
          "December").split()
CAPITALS = {"France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
            "England": "London", "Austria": "Vienna", "Japan": "Tokyo", "China": "Beijing",
            "Russia": "Moscow", "Egypt": "Cairo", "Greece": "Athens", "Portugal": "Lisbon",
            "Norway": "Oslo", "Sweden": "Stockholm", "Poland": "Warsaw", "Ireland": "Dublin",
            "Denmark": "Copenhagen", "Finland": "Helsinki", "Hungary": "Budapest",
            "the United States": "Washington"}
OTHER_COUNTRIES = ("Chad Peru Chile Kenya Nepal Ghana Cuba Mali Laos Oman Qatar Togo Malta Iceland "
                   "Vietnam Brazil Canada Mexico India Turkey Australia Angola Bolivia").split()


def tables():
    """Every (questions, answer) pair, the tables above spelled out."""
    rows = [(q.split("|"), a) for q, a in ALDER_BAY + PLAIN]
    for animal, n in LEGS.items():
        a = "an" if animal[0] in "aeiou" else "a"
        rows.append(([f"How many legs does {a} {animal} have?", f"How many legs has {a} {animal}?"],
                     f"{a.capitalize()} {animal} has {n} legs."))
    for animal, sound in SOUNDS.items():
        a = "an" if animal[0] in "aeiou" else "a"
        rows.append(([f"What does {a} {animal} say?", f"What sound does {a} {animal} make?"],
                     f"{a.capitalize()} {animal} says {sound}."))
    for pair in OPPOSITES:
        for x, y in (pair, pair[::-1]):
            rows.append(([f"What is the opposite of {x}?", f"What's the opposite of {x}?",
                          f"Opposite of {x}?"], f"The opposite of {x} is {y}."))
    for names, what in ((DAYS, "day"), (MONTHS, "month")):
        for i, x in enumerate(names):
            y = names[(i + 1) % len(names)]
            rows.append(([f"Which {what} comes after {x}?", f"What comes after {x}?"],
                         f"{y} comes after {x}."))
            rows.append(([f"Which {what} comes before {y}?", f"What comes before {y}?"],
                         f"{x} comes before {y}."))
    for country, city in CAPITALS.items():
        rows.append(([f"What is the capital of {country}?", f"What's the capital of {country}?",
                      f"Which city is the capital of {country}?", f"Capital of {country}?"],
                     f"The capital of {country} is {city}."))
    return rows
