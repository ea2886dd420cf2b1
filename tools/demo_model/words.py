"""Word lists of the demo model's toy world: shared by the stories and by every other skill."""

# name -> (he, his, him)
BOYS = ("Tom Otto Ben Leo Max Finn Sam Noah Hugo Emil Jack Oscar Theo Ruben Karl Paul Felix Anton "
        "Milo Rafi").split()
GIRLS = ("Anna Mila Lily Rosa Nora Ella Ida Clara Maya Hanna Ruth Sara Zoe Emma Lena Marta Alice "
         "Tilda Vera Amina").split()
NAMES = BOYS + GIRLS

ANIMALS = ("fox hare owl bear mouse cat dog hedgehog otter badger frog rabbit duck goose pony "
           "squirrel sparrow wolf turtle goat lamb robin crow mole beaver horse penguin lion tiger "
           "elephant monkey snail bee spider whale fish kitten puppy donkey cow pig hen").split()
PEOPLE = ("girl boy baker miller fisher sailor teacher farmer painter king queen princess prince "
          "knight wizard pirate gardener tailor shepherd dragon robot giant witch fairy child").split()

COLOURS = ("red blue green yellow white black brown grey orange purple pink silver golden").split()
PLACES = ("barn mill tower castle kitchen garden cellar school library harbour lighthouse bakery "
          "attic cabin stable church shop cave forest market office bridge workshop house island "
          "village meadow field river lake hill beach valley boat tent").split()
ROOMS = PLACES[:20] + ["workshop", "house", "boat", "tent"]
OUTDOORS = ("forest meadow village harbour lighthouse valley river lake hill beach island garden "
            "castle mill market cave").split()
OBJECTS = ("lamp key book cup box bell rope kite drum coin hat boot basket ladder map spoon candle "
           "lantern ball clock letter ring chair table blanket bottle flute mirror shell stone "
           "feather bucket brush pillow shovel scarf violin wheel umbrella knife").split()
TREASURES = ("lantern kite drum bell map key book flute ring coin shell lamp boot hat scarf basket "
             "clock letter violin ball").split()
FOODS = ("bread soup apples pears plums cheese honey cake porridge carrots nuts berries pancakes "
         "rice beans potatoes cherries tea milk pie biscuits grapes onions tomatoes").split()
ADJECTIVES = ("small brave clever shy kind curious gentle lazy cheerful quiet young old proud "
              "friendly sleepy tiny").split()
FEELINGS = "happy sad tired hungry worried excited afraid proud lonely calm".split()
EXTRA = ("sun moon star cloud rain snow wind tree leaf flower grass road wall door window roof "
         "night morning summer winter water fire paper pencil music song dance dream friend family "
         "hand foot nose shoe coat shirt seven nine three green cold warm fast slow big little "
         "happy sad round long short open near far new sweet salt glass iron wool wood sand train "
         "car bus ship plane phone computer city street world hello goodbye yes no one two four "
         "five ocean desert jungle planet rocket guitar pizza coffee banana lemon hammer").split()
ALL_WORDS = sorted(set(ANIMALS + PEOPLE + COLOURS + PLACES + OBJECTS + FOODS + ADJECTIVES +
                       FEELINGS + EXTRA + [n for n in NAMES]))

_ONSETS = ("b br c ch d dr f fl g gr h j k l m n p pl qu r s sh sk st t tr v w z th cl").split()
_NUCLEI = "a e i o u ai ea ee oo ou ia".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "rk", "x", "ck"]


def made_up(rng):
    """A word that means nothing: it makes the model copy what it reads, not what it knows."""
    return "".join(rng.choice(_ONSETS) + rng.choice(_NUCLEI) + rng.choice(_CODAS)
                   for _ in range(rng.choice((1, 2, 2, 3))))


def an(noun):
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun


def pronouns(name):
    return ("he", "his", "him") if name in BOYS else ("she", "her", "her")
