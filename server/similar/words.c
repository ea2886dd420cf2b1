#include "server/similar/words.h"

#include <pthread.h>
#include <string.h>

#define INDEX_SLOTS 4096 /* about a third are used */

uint64_t word_hash(char kind, const char *text, size_t n)
{
    uint64_t h = (0xcbf29ce484222325u ^ (uint8_t)kind) * 0x100000001b3u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)text[i]) * 0x100000001b3u;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
    h ^= h >> 33;
    return h ? h : 1;
}

/* ---- endings ---- */

static bool ends_with(const char *text, size_t n, const char *end)
{
    size_t k = strlen(end);
    return n > k && memcmp(text + n - k, end, k) == 0;
}

static bool has_vowel(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr("aeiouy", text[i]))
            return true;
    return false;
}

static size_t cut_plural(char *text, size_t n)
{
    if (n > 4 && ends_with(text, n, "ies")) {
        text[n - 3] = 'y';
        return n - 2;
    }
    if (ends_with(text, n, "sses") || ends_with(text, n, "xes") || ends_with(text, n, "ches") ||
        ends_with(text, n, "shes"))
        return n - 2;
    /* "gas", "virus", "analysis", "class" keep it */
    return n > 3 && text[n - 1] == 's' && !strchr("siua", text[n - 2]) ? n - 1 : n;
}

static size_t cut_verb(char *text, size_t n)
{
    size_t cut = ends_with(text, n, "ing") ? 3 : ends_with(text, n, "ed") && !ends_with(text, n, "eed") ? 2 : 0;
    if (cut == 0 || n < cut + 3 || !has_vowel(text, n - cut))
        return n;
    n -= cut;
    /* "running": run, but "adding": add, "telling": tell */
    if (n > 3 && text[n - 1] == text[n - 2] && !strchr("lsz", text[n - 1]))
        n--;
    return n;
}

/* By its ending; irregular ones are in the tables. */
static enum word_form form_of(const char *word, size_t n)
{
    char text[WORD_MAX_BYTES];
    memcpy(text, word, n);
    for (size_t i = 0; i < n; i++)
        if (text[i] < 'a' || text[i] > 'z')
            return FORM_BASE;
    n = cut_plural(text, n);
    if (cut_verb(text, n) < n)
        return text[n - 1] == 'd' ? FORM_PAST : FORM_ING;
    return (n >= 8 && ends_with(text, n, "ion")) || (n >= 9 && ends_with(text, n, "ment")) ? FORM_NOUN : FORM_BASE;
}

size_t word_stem(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] < 'a' || text[i] > 'z')
            return n;
    n = cut_plural(text, n);
    size_t before = n;
    n = cut_verb(text, n);
    /* Five letters must be left: "station" is not "state", "version" no "verse". */
    if (n == before && n >= 8 && ends_with(text, n, "ion"))
        n -= 3;
    else if (n == before && n >= 9 && ends_with(text, n, "ment"))
        n -= 4;
    if (n > 3 && text[n - 1] == 'e')
        n--;
    if (n > 3 && text[n - 1] == 'y')
        text[n - 1] = 'i';
    return n;
}

/* ---- tables ---- */

/* Words as they are; no ending is cut. */
static const struct {
    uint32_t flags;
    uint8_t mark;
    uint16_t leans;
    const char *words;
} exact[] = {
    {WORD_FRAME | WORD_ARTICLE, 0, 0, "a an the"},
    {WORD_FRAME | WORD_ARTICLE | WORD_ANY, MARK_SOME, 0, "some"},
    {WORD_FRAME | WORD_ARTICLE | WORD_ANY, MARK_ANY, 0, "any"},
    {WORD_FRAME | WORD_ARTICLE, MARK_THIS, 0, "this these"},
    {WORD_FRAME | WORD_ARTICLE, MARK_THAT, 0, "that those"},
    {WORD_FRAME, 0, 0,
     "i it its itself then so also actually exactly basically please kindly what which "
     "let's ok okay you"},
    {WORD_FRAME | WORD_OF | WORD_PREPOSITION, 0, 0, "of"},
    {WORD_FRAME | WORD_OF | WORD_PREPOSITION, 0, LEAN_IN, "in"},
    {WORD_FRAME | WORD_OF | WORD_PREPOSITION, 0, LEAN_ON, "on"},
    {WORD_FRAME | WORD_OF | WORD_PREPOSITION, 0, LEAN_AT, "at"},
    {WORD_FRAME | WORD_OF | WORD_PREPOSITION, 0, LEAN_FOR, "for"},
    {WORD_FRAME | WORD_OF | WORD_PREPOSITION, 0, LEAN_ABOUT, "about regarding concerning"},
    {WORD_FRAME | WORD_PREPOSITION, 0, LEAN_AS, "as"},
    {WORD_FRAME | WORD_PREPOSITION, 0, LEAN_WITH, "with"},
    {WORD_FRAME | WORD_PREPOSITION, 0, LEAN_INTO, "into onto"},
    {WORD_FRAME | WORD_AND, 0, 0, "and"},
    {WORD_FRAME | WORD_AND | WORD_SAME_EITHER_WAY, 0, 0, "vs versus"},
    {WORD_FRAME | WORD_TO, 0, 0, "to"},
    {WORD_FRAME | WORD_FROM, MARK_FROM, 0, "from"},
    {WORD_FRAME, MARK_BY, 0, "by"},
    {WORD_FRAME | WORD_AND | WORD_SAME_EITHER_WAY, MARK_OR, 0, "or"},
    {WORD_FRAME, MARK_WHO, 0, "who whom whose"},
    {WORD_FRAME, MARK_WHEN, 0, "when"},
    {WORD_FRAME, MARK_WHERE, 0, "where located location"},
    {WORD_FRAME, MARK_WHY, 0, "why reason reasons"},
    {WORD_FRAME, MARK_HOW, 0, "how way ways method methods technique techniques"},
    {WORD_FRAME, MARK_SUMMARY, 0, "summary summarize summarise overview recap"},
    {WORD_FRAME | WORD_AUXILIARY, 0, LEAN_PRESENT, "do does"},
    {WORD_FRAME | WORD_AUXILIARY, 0, LEAN_PRESENT | LEAN_BE, "is are"},
    {WORD_FRAME | WORD_AUXILIARY, 0, LEAN_PRESENT | LEAN_BE | LEAN_SELF, "am"},
    {WORD_FRAME | WORD_AUXILIARY, 0, LEAN_PAST, "did"},
    {WORD_FRAME | WORD_AUXILIARY, 0, LEAN_PAST | LEAN_BE, "was were"},
    {WORD_FRAME | WORD_AUXILIARY, 0, LEAN_PAST | LEAN_HAVE, "had"},
    {WORD_FRAME, 0, LEAN_BE, "be"},
    {WORD_FRAME, MARK_BEEN, LEAN_BE, "been"},
    {WORD_FRAME, MARK_BEING, LEAN_BE, "being"},
    {WORD_FRAME, 0, LEAN_HAVE, "having"},
    {WORD_FRAME | WORD_AUXILIARY, 0, LEAN_FUTURE, "will shall"},
    {WORD_FRAME | WORD_AUXILIARY, MARK_CAN, 0, "can able"},
    {WORD_FRAME | WORD_AUXILIARY, MARK_COULD, 0, "could"},
    {WORD_FRAME | WORD_AUXILIARY, MARK_MAY, 0, "may"},
    {WORD_FRAME | WORD_AUXILIARY, MARK_MIGHT, 0, "might"},
    {WORD_FRAME | WORD_AUXILIARY, MARK_WOULD, 0, "would"},
    {WORD_FRAME | WORD_AUXILIARY, 0, LEAN_HAVE, "has have"},
    {WORD_AUXILIARY, 0, 0, "should must"},
    {WORD_FRAME | WORD_ARTICLE, 0, LEAN_SELF, "my mine myself"},
    {WORD_FRAME | WORD_ARTICLE, 0, LEAN_OTHER, "your yours yourself yourselves"},
    {WORD_COMMAND, 0, 0,
     "explain describe define tell give show teach help let list enumerate discuss introduce elaborate clarify know want need like "
     "wonder wondering curious ask understand learn provide"},
    {WORD_BEFORE_OF, 0, 0,
     "information info details detail explanation description definition outline more something everything all question concept "
     "notion idea topic term subject curious wondering"},
    {WORD_GREETING, 0, 0, "hello hi hey thanks thank greetings dear"},
    {WORD_NOT, 0, 0,
     "not no cannot cant dont doesnt didnt wont isnt arent wasnt werent shouldnt couldnt wouldnt hasnt havent hadnt unable non"},
    {WORD_NOT | WORD_NOT_ITSELF, 0, 0,
     "never without none neither nor except unless nothing nobody nowhere hardly barely lacking"},
    {WORD_ABOUT_WORDS, 0, 0,
     "mean means meaning word words spell spelled spelling translate translation translated synonym synonyms antonym "
     "antonyms pronounce pronounced pronunciation rhyme rhymes sentence phrase letter letters verb noun tense repeat "
     "rewrite rephrase paraphrase proofread correct say says said saying"},
    {WORD_OPENS | WORD_SAME_EITHER_WAY, 0, 0, "compare comparison difference differences differ between"},
    {WORD_OPENS, 0, 0, "both"},
    {WORD_PAST, 0, 0,
     "chose chosen made went gone bought got gotten took taken wrote written won sold paid lost died began begun ate eaten ran came "
     "saw seen spoke spoken grew grown fell fallen drove driven thought became hit cut put set let shut hurt quit split spread bet burst"},
    {WORD_AGENT, 0, 0, "inventor inventors founder founders discovery discoveries"},
    {WORD_CASED, 0, 0,
     "polish turkey china japan chile jordan march may august apple windows java swift rust go amazon bill mark rose reading nice "
     "mobile oracle orange shell target gap word excel access outlook teams edge chrome safari meta signal slack zoom will us it who "
     "aids catholic earth mercury cuba job pole finish welsh scotch lima tangier divine frank jack rich grace hope joy faith"},
    {WORD_KEPT, 0, 0,
     "glasses customs arms goods news painting paintings building buildings meeting meetings wedding weddings evening evenings "
     "feeling feelings housing engineering statement statements apartment apartments department departments question questions "
     "string strings pants jeans united states remains"},
    {WORD_UNIT | WORD_AFTER_NUMBER, 0, 0, "m g l s h c f k t b w v a n j"},
};

/* In other languages only what is no English word counts. */
static const struct {
    uint8_t language;
    const char *words;
} usual[] = {
    {LANGUAGE_GERMAN,
     "der die das und ist nicht wie ein eine einen ich sie wir mit von zu für auf den dem warum wer wo wann bitte kann "
     "erkläre sind wird über mir mich"},
    {LANGUAGE_FRENCH,
     "le la les et est pas une un des du je il elle nous vous avec pour dans sur que qui quoi comment pourquoi où "
     "quel quelle quels sont quand est-ce moi expliquez"},
    {LANGUAGE_SPANISH,
     "el los las y es una uno con por para qué cómo dónde cuándo cuál del al que como donde cuando quién puedo "
     "mi tu explica son está"},
    {LANGUAGE_ITALIAN,
     "il lo gli e è di che non un uno una con per come dove quando perché quale chi sono del della spiega mi"},
    {LANGUAGE_PORTUGUESE,
     "o os as e é um uma com por para que não como onde quando qual quem do da dos das são você explique"},
    {LANGUAGE_DUTCH,
     "het een en niet hoe waarom wie waar wanneer ik je jij wij met van naar voor op zijn wat welke leg uit kan"},
};

/* Each line: words that say the same, in all their forms. */
static const char *const same[] = {
    "benefit advantage pro upside",
    "drawback disadvantage con downside",
    "car automobile",
    "big large",
    "small little",
    "fast quick rapid",
    "fastest quickest",
    "fix repair",
    "delete remove erase",
    "picture photo image photograph",
    "movie film",
    "doctor physician",
    "kid child children",
    "price cost",
    "illness disease sickness",
    "use using uses used utilize utilise usage",
    "simple easy",
    "simply easily",
    "difficult hard",
    "important significant",
    "occur happen happened",
    "choose select pick chose chosen",
    "smart intelligent clever",
    "phone telephone",
    "tv television",
    "effect impact consequence",
    "example instance",
    "affect influence",
    "make makes making made",
    "go goes going went gone",
    "buy bought purchase",
    "get gets got getting obtain",
    "take took taken",
    "write wrote written",
    "win won",
    "sell sold",
    "pay paid",
    "lose lost",
    "die died dying",
    "begin began begun start",
    "end finish",
    "eat ate eaten",
    "man men",
    "woman women",
    "person people",
    "run ran",
    "come came",
    "see saw seen",
    "speak spoke spoken",
    "grow grew grown",
    "fall fell fallen",
    "drive drove driven",
    "think thought",
    "become became",
    "improve enhance",
    "job occupation",
    "should ought",
    "colour color",
    "favourite favorite",
    "house home",
    "tip advice suggestion",
    "guide tutorial",
    "symptom sign",
    "inventor invent",
    "founder founded",
    "discover discovery",
    "different diverse",
    "typical usual common",
    "store shop",
    "medicine medication drug",
    "lift elevator",
    "holiday vacation",
    "clothe clothing clothes",
    "cheap inexpensive",
    "famous renowned",
    "trip journey",
    "gift present",
    "rabbit bunny",
    "mum mom mother",
    "dad father",
    "everyone everybody",
    "someone somebody",
    "setting configuration",
    "difference differ distinction",
    "compare comparison",
    "climate climatic",
    "strengthen fortify",
};

/* Units, likewise. */
static const char *const units[] = {
    "mg milligram milligramme",
    "mcg microgram",
    "gram gramme g",
    "kg kilogram kilo kilogramme",
    "tonne",
    "ton",
    "ounce oz",
    "pound lb lbs",
    "km kilometre kilometer kms",
    "metre meter m",
    "cm centimetre centimeter",
    "mm millimetre millimeter",
    "mile mi",
    "yard yd",
    "foot feet ft",
    "inch inches",
    "litre liter l",
    "ml millilitre milliliter",
    "gallon gal",
    "cup",
    "pint",
    "tablespoon tbsp",
    "teaspoon tsp",
    "celsius centigrade c",
    "fahrenheit f",
    "kelvin",
    "degree deg",
    "radian",
    "second sec s",
    "millisecond ms",
    "microsecond",
    "minute min",
    "hour hr h",
    "day daily",
    "week weekly",
    "month monthly",
    "year",
    "decade",
    "century",
    "byte",
    "bit",
    "kb kilobyte",
    "mb megabyte",
    "gb gigabyte",
    "tb terabyte",
    "kib",
    "mib",
    "gib",
    "hz hertz",
    "khz",
    "mhz",
    "ghz",
    "watt",
    "kw kilowatt",
    "kwh",
    "volt",
    "amp ampere",
    "joule",
    "calorie kcal",
    "mph",
    "kmh kph",
    "acre",
    "hectare",
    "percent percentage pct",
    "dollar usd buck",
    "euro eur",
    "gbp sterling",
    "yen jpy",
    "yuan rmb cny",
    "rupee inr",
    "franc chf",
    "bitcoin btc",
    "cent",
    "dozen",
};

/* Verbs whose meaning changes with each preposition, and words that are counted by letters. */
static const char *const phrasal[] = {
    "look",  "turn",   "put",   "take", "get",  "go",    "come",  "give", "call", "log",    "sign",  "run",   "set",
    "break", "bring",  "cut",   "fall", "hold", "keep",  "make",  "pass", "pick", "pull",   "stand", "work",  "check",
    "hand",  "fill",   "carry", "hang", "live", "think", "ask",   "pay",  "hear", "wait",   "apply", "point", "shout",
    "throw", "switch", "care",  "play", "talk", "speak", "write", "stay", "move", "listen", "knock"};
static const char *const lettered[] = {
    "vitamin",   "hepatitis", "type",   "grade",  "group", "plan", "team", "option",   "class",    "level", "section",
    "influenza", "protein",   "factor", "series", "model", "part", "war",  "appendix", "schedule", "omega", "variant"};

/* Opposites, "one side|other side". Words of a side do not say the same. */
static const char *const opposites[] = {
    "on|off",
    "enable|disable",
    "increase raise|decrease lower reduce",
    "start begin launch|stop halt end finish",
    "buy purchase|sell",
    "allow permit|deny forbid prohibit block",
    "before prior|after following",
    "minimum min minimal|maximum max maximal",
    "minimize minimise|maximize maximise",
    "hot warm|cold cool",
    "open|close closed shut",
    "lock|unlock",
    "up|down",
    "in into inside|out outside",
    "over above|under below beneath",
    "high higher highest|low lowest",
    "more|less fewer",
    "most|least fewest",
    "best|worst",
    "better|worse",
    "good great|bad terrible",
    "first|last",
    "early earlier|late later",
    "fast faster quick|slow slower",
    "big bigger large larger|small smaller little",
    "long longer|short shorter",
    "old older|new newer young",
    "left|right",
    "top|bottom",
    "front|back rear",
    "push|pull",
    "add|remove subtract",
    "install|uninstall",
    "connect|disconnect",
    "encrypt|decrypt",
    "encode|decode",
    "compress|decompress",
    "import|export",
    "upload|download",
    "send|receive",
    "give|take receive",
    "accept|reject refuse",
    "win|lose",
    "pass|fail",
    "true|false",
    "yes|no",
    "safe|dangerous unsafe",
    "legal|illegal",
    "gain|lose",
    "male|female",
    "boy|girl",
    "man|woman",
    "husband|wife",
    "mother|father",
    "son|daughter",
    "king|queen",
    "day|night",
    "morning|evening",
    "summer|winter",
    "north|south",
    "east|west",
    "northern|southern",
    "eastern|western",
    "rise|fall",
    "arrive|depart leave",
    "arrival|departure",
    "enter|exit leave",
    "show display|hide",
    "save|spend",
    "borrow|lend",
    "love like|hate dislike",
    "advantage benefit pro|disadvantage drawback con",
    "strength|weakness",
    "cause|effect",
    "question|answer",
    "rich|poor",
    "hard difficult|easy simple soft",
    "heavy|light",
    "dark|bright light",
    "wet|dry",
    "clean|dirty",
    "full|empty",
    "always|never",
    "all|none",
    "with|without",
    "subscribe|unsubscribe",
    "follow|unfollow",
    "mount|unmount",
    "ascend ascending|descend descending",
    "input|output",
    "forward|backward",
    "internal|external",
    "public|private",
    "positive|negative",
    "acid|alkaline",
    "thick|thin",
    "wide|narrow",
    "deep|shallow",
    "strong|weak",
    "inhale|exhale",
    "expand|shrink contract",
    "attach|detach",
    "activate|deactivate",
    "active|inactive",
    "include|exclude",
    "inclusive|exclusive",
    "grant|revoke",
    "mute|unmute",
    "freeze|thaw melt",
    "gain|loss",
    "profit|loss",
    "hire|fire dismiss",
    "credit|debit",
    "supply|demand",
    "parent|child",
    "teacher|student",
    "employer|employee",
    "plus|minus",
    "multiply|divide",
    "horizontal|vertical",
    "sync synchronous|async asynchronous",
    "online|offline",
    "odd|even",
    "guilty|innocent",
    "asleep|awake",
    "alive|dead",
    "bull|bear",
    "long|short",
};

static const struct {
    uint64_t value;
    const char *words;
} numbers[] = {
    {0, "zero"},      {1, "one"},         {2, "two"},           {3, "three"},
    {4, "four"},      {5, "five"},        {6, "six"},           {7, "seven"},
    {8, "eight"},     {9, "nine"},        {10, "ten"},          {11, "eleven"},
    {12, "twelve"},   {13, "thirteen"},   {14, "fourteen"},     {15, "fifteen"},
    {16, "sixteen"},  {17, "seventeen"},  {18, "eighteen"},     {19, "nineteen"},
    {20, "twenty"},   {30, "thirty"},     {40, "forty"},        {50, "fifty"},
    {60, "sixty"},    {70, "seventy"},    {80, "eighty"},       {90, "ninety"},
    {100, "hundred"}, {1000, "thousand"}, {1000000, "million"}, {1000000000, "billion"},
};

_Static_assert(sizeof opposites / sizeof opposites[0] < MAX_POLES, "a bit for each");

/* ---- their index ---- */

static struct {
    uint64_t key; /* 0: free */
    struct word word;
} slots[INDEX_SLOTS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static struct word *slot_of(uint64_t key, bool make)
{
    size_t at = key % INDEX_SLOTS;
    while (slots[at].key != key) {
        if (slots[at].key == 0) {
            if (!make)
                return NULL;
            slots[at].key = key;
            slots[at].word.concept = key;
            break;
        }
        at = (at + 1) % INDEX_SLOTS;
    }
    return &slots[at].word;
}

/* The next word of a list, at *list; false at its end. */
static bool next_word(const char **list, const char **word, size_t *n)
{
    *list += strspn(*list, " ");
    *word = *list;
    *n = strcspn(*list, " ");
    *list += *n;
    return *n > 0;
}

static uint64_t stem_key(const char *word, size_t n)
{
    char text[WORD_MAX_BYTES];
    memcpy(text, word, n);
    return word_hash('w', text, word_stem(text, n));
}

static void index_exact(void)
{
    const char *word;
    size_t n;
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
        for (const char *list = exact[i].words; next_word(&list, &word, &n);) {
            struct word *w = slot_of(word_hash('x', word, n), true);
            w->concept = stem_key(word, n);
            w->flags |= exact[i].flags;
            w->leans |= exact[i].leans;
            w->mark = exact[i].mark ? exact[i].mark : w->mark;
        }
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        for (const char *list = usual[i].words; next_word(&list, &word, &n);) {
            struct word *w = slot_of(word_hash('l', word, n), true);
            w->language = w->language ? w->language : usual[i].language;
        }
}

static void index_groups(const char *const *groups, size_t n_groups, uint32_t flags)
{
    const char *word;
    size_t n;
    for (size_t i = 0; i < n_groups; i++) {
        const char *list = groups[i];
        uint64_t concept = 0;
        while (next_word(&list, &word, &n)) {
            uint64_t key = stem_key(word, n);
            struct word *w = slot_of(key, true);
            if (concept == 0)
                concept = w->concept; /* a group that begins with another's word joins it */
            w->concept = concept;
            w->flags |= flags;
        }
    }
}

static void index_opposites(void)
{
    const char *word;
    size_t n;
    for (size_t i = 0; i < sizeof opposites / sizeof opposites[0]; i++) {
        const char *bar = strchr(opposites[i], '|');
        char side[2][128];
        memcpy(side[0], opposites[i], (size_t)(bar - opposites[i]));
        side[0][bar - opposites[i]] = '\0';
        strncpy(side[1], bar + 1, sizeof side[1] - 1);
        side[1][sizeof side[1] - 1] = '\0';
        for (int s = 0; s < 2; s++)
            for (const char *list = side[s]; next_word(&list, &word, &n);) {
                struct word *w = slot_of(stem_key(word, n), true);
                if (w->pole == 0) {
                    w->pole = (uint8_t)(i + 1);
                    w->other_side = s;
                }
            }
    }
}

static void make_index(void)
{
    index_groups(same, sizeof same / sizeof same[0], 0);
    index_groups(units, sizeof units / sizeof units[0], WORD_UNIT);
    index_groups(phrasal, sizeof phrasal / sizeof phrasal[0], WORD_PHRASAL);
    index_groups(lettered, sizeof lettered / sizeof lettered[0], WORD_LETTERED);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct word *w = slot_of(stem_key(numbers[i].words, strlen(numbers[i].words)), true);
        w->flags |= WORD_NUMBER;
        w->value = numbers[i].value;
    }
    index_opposites();
    index_exact();
}

struct word word_look_up(const char *text, size_t n)
{
    pthread_once(&made, make_index);
    uint64_t key = stem_key(text, n);
    struct word word = {.concept = key};
    const struct word *stem = slot_of(key, false), *as_is = slot_of(word_hash('x', text, n), false),
                      *other = slot_of(word_hash('l', text, n), false);
    if (stem)
        word = *stem;
    if (as_is) {
        if (as_is->flags & WORD_KEPT)
            word.concept = word_hash('k', text, n);
        word.flags |= as_is->flags;
        word.leans = as_is->leans;
        word.mark = as_is->mark;
    }
    word.form = word.flags & WORD_AGENT  ? FORM_ANY
                : word.flags & WORD_KEPT ? FORM_BASE
                : word.flags & WORD_PAST ? FORM_PAST
                                         : form_of(text, n);
    word.language = other ? other->language : LANGUAGE_NONE;
    return word;
}
