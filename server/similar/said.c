#include "server/similar/said.h"

#include <string.h>

/* How an item is joined to the one before it. */
enum join { JOIN_NEXT, JOIN_PARTED, JOIN_OF, JOIN_AND, JOIN_TO, JOIN_FROM };

struct speaker {
    const struct tokens *tokens;
    struct said *out;
    enum join join;    /* of the next item */
    bool begun;        /* an item was added */
    bool joined;       /* there is an AND */
    bool what;         /* "what" precedes the current words */
    uint32_t persons;  /* leans of "do you" and "do I", which are general in a question with "how" */
    bool title;        /* Most Words Begin So */
    bool turns;        /* items joined by AND may change order */
    bool keeps;        /* items joined by AND may not change order: "commit and push" */
    bool anybody_can;  /* "how can I", which is how it is done */
};

/* ---- properties of the whole text ---- */

static uint8_t language_of(const struct tokens *t)
{
    uint8_t best = LANGUAGE_ENGLISH;
    for (uint8_t l = LANGUAGE_ENGLISH + 1; l < N_LANGUAGES; l++)
        if (t->usual[l] > t->usual[best] && t->usual[l] >= 2) /* one alone is also in "Los Angeles" */
            best = l;
    return t->usual[best] > 0 ? best : LANGUAGE_NONE;
}

static bool is_i(const struct token *t)
{
    return t->kind == TOKEN_WORD && (t->word.leans & LEAN_SELF || t->as_is == word_hash('x', "i", 1));
}

static bool is_title(const struct tokens *t)
{
    size_t n_capital = 0, n_other = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct token *w = &t->items[i];
        if (w->kind != TOKEN_WORD || w->first || is_i(w))
            continue;
        n_capital += w->capital;
        n_other += !w->capital;
    }
    return n_capital > n_other;
}

/* ---- items ---- */

/* Adds the properties of the last item's word other than its meaning. */
static void say_how(struct speaker *s, const struct token *t)
{
    struct said_item *item = &s->out->items[s->out->n - 1];
    item->form = t->word.form;
    item->folded = t->folded;
    item->cased = s->title && !t->is_symbol ? 0 : t->cased;
    item->is_cased = t->is_cased;
    s->out->has_past = s->out->has_past || t->word.form == FORM_PAST;
}

static void say(struct speaker *s, enum said_kind kind, uint64_t hash, uint64_t bare)
{
    struct said *out = s->out;
    out->items[out->n++] = (struct said_item){
        .hash = hash, .bare = bare, .kind = (uint8_t)kind, .join = (uint8_t)s->join, .form = FORM_ANY};
    s->join = JOIN_NEXT;
    s->begun = true;
}

static const struct token *token_at(const struct speaker *s, size_t i)
{
    static const struct token none = {.kind = TOKEN_STOP};
    return i < s->tokens->n ? &s->tokens->items[i] : &none;
}

static bool has(const struct token *t, unsigned flag)
{
    return t->kind == TOKEN_WORD && t->word.flags & flag;
}

static bool is_word(const struct token *t, const char *word)
{
    return t->kind == TOKEN_WORD && t->as_is == word_hash('x', word, strlen(word));
}

/* "one" used as a pronoun. */
static bool is_pronoun(const struct speaker *s, size_t i)
{
    const struct token *before = i > 0 ? token_at(s, i - 1) : NULL, *next = token_at(s, i + 1);
    return is_word(token_at(s, i), "one") && !is_word(next, "of") &&
           ((before && has(before, WORD_AUXILIARY | WORD_ARTICLE)) || (before && is_word(before, "which")) ||
            (before && is_word(before, "no")) || has(next, WORD_AUXILIARY));
}

static void say_number(struct speaker *s, uint64_t value)
{
    char text[24];
    size_t n = sizeof text;
    do
        text[--n] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    say(s, SAID_NUMBER, word_hash('#', text + n, sizeof text - n), 0);
}

/* Words that make one number: "two hundred thousand", "twenty five", "5 million". Returns the token behind them. */
static size_t say_spelled(struct speaker *s, size_t i)
{
    uint64_t total = 0, part = token_at(s, i)->word.value;
    bool any = token_at(s, i)->kind == TOKEN_WORD && part >= 100;
    part = any ? 1 : part;
    for (i += !any; has(token_at(s, i), WORD_NUMBER); i++) {
        uint64_t v = token_at(s, i)->word.value;
        if (v >= 1000 && part > 0 && part < 1000000000) {
            total += part * v;
            part = 0;
        } else if (v == 100 && part > 0 && part < 100) {
            part *= 100;
        } else if (v < 100 && (part % 100 == 0 || (part % 10 == 0 && part % 100 >= 20 && v < 10))) {
            part += v;
        } else {
            break;
        }
    }
    say_number(s, total + part);
    return i;
}

/* ---- words ---- */

/* A word that requests an answer and does not ask about an ability. */
static bool is_request(const struct token *t)
{
    return has(t, WORD_COMMAND | WORD_ABOUT_WORDS) || is_word(t, "please") || is_word(t, "kindly") ||
           (t->kind == TOKEN_WORD && t->word.mark == MARK_SUMMARY);
}

/* "Can you tell me …", "could somebody explain", "I would like to". */
static bool is_courtesy(const struct speaker *s, size_t i)
{
    const struct token *t = token_at(s, i), *next = token_at(s, i + 1);
    bool asks_for_it = (t->word.mark == MARK_CAN || t->word.mark == MARK_COULD || t->word.mark == MARK_WOULD ||
                        t->word.leans & LEAN_FUTURE) &&
                       is_word(next, "you") && is_request(token_at(s, i + 2));
    return !s->begun && ((t->first && (asks_for_it || has(token_at(s, i + 2), WORD_COMMAND))) || is_word(next, "like"));
}

/* "What benefits does X have" means the benefits of X. */
static bool ends_with_have(const struct tokens *t)
{
    size_t n = t->n;
    while (n > 0 && t->items[n - 1].kind == TOKEN_STOP)
        n--;
    return n > 0 && (is_word(&t->items[n - 1], "have") || is_word(&t->items[n - 1], "has"));
}

static bool makes_of(const struct speaker *s, const struct token *t)
{
    if (!s->what || s->join != JOIN_NEXT)
        return false;
    return is_word(t, "is") || is_word(t, "are") || is_word(t, "was") || is_word(t, "were") ||
           ((is_word(t, "do") || is_word(t, "does")) && ends_with_have(s->tokens));
}

static void say_not(struct speaker *s, const struct token *t)
{
    uint64_t hash = t->word.flags & WORD_NOT_ITSELF ? t->word.concept : word_hash('!', "not", 3);
    s->out->nots += hash;
    if (s->join == JOIN_AND) /* "A and not B" is not "B and not A" */
        s->join = JOIN_PARTED;
    say(s, SAID_NOT, hash, 0);
}

/* Properties that count wherever the word appears. */
static void note(struct speaker *s, size_t i)
{
    const struct token *t = token_at(s, i), *before = i > 0 ? token_at(s, i - 1) : NULL, *next = token_at(s, i + 1);
    struct said *out = s->out;
    uint32_t leans = t->word.leans;
    if (out->n == 0)
        leans &= ~(uint32_t)LEAN_PREPOSITIONS; /* "tell me about" */
    if (leans & LEAN_HAVE && next->kind == TOKEN_STOP)
        leans &= ~(uint32_t)LEAN_HAVE; /* "what legs does it have" means what its legs are */
    out->leans |= leans;
    if (is_word(t, "you") &&
        (has(next, WORD_AUXILIARY) || (before && (is_word(before, "are") || is_word(before, "were")))))
        out->leans |= LEAN_OTHER;
    if (t->word.pole)
        out->poles[t->word.other_side][t->word.pole / 64] |= 1ull << t->word.pole % 64;
    if (t->word.flags & WORD_ABOUT_WORDS)
        out->only_plain = true;
    bool is_any = t->word.flags & WORD_ANY && before &&
                  (has(before, WORD_COMMAND) || is_word(before, "me") || is_word(before, "us") ||
                   (is_word(before, "are") && i > 1 && is_word(token_at(s, i - 2), "what")));
    if (t->word.mark && !is_courtesy(s, i) && !is_any) {
        out->marks |= 1u << t->word.mark;
        s->begun = true;
    }
    if ((is_word(t, "have") || is_word(t, "has") || is_word(t, "had")) && is_word(next, "to"))
        out->marks |= 1u << MARK_HAVE_TO;
    out->n_the += is_word(t, "the");
    s->anybody_can = s->anybody_can || (t->word.mark == MARK_CAN && (is_word(next, "i") || is_word(next, "you") ||
                                                                     is_word(next, "we") || is_word(next, "one")));
    s->turns = s->turns || t->word.flags & WORD_SAME_EITHER_WAY;
    s->keeps = s->keeps || is_word(t, "and");
}

static void pass_frame(struct speaker *s, const struct token *t)
{
    unsigned f = t->word.flags;
    if (f & WORD_ARTICLE)
        return;
    if (makes_of(s, t))
        f = WORD_OF; /* "what colour is grass" means the colour of grass */
    s->what = is_word(t, "what") || is_word(t, "which");
    s->join = f & WORD_OF     ? JOIN_OF
              : f & WORD_AND  ? JOIN_AND
              : f & WORD_TO   ? JOIN_TO
              : f & WORD_FROM ? JOIN_FROM
                              : JOIN_PARTED;
    s->joined = s->joined || f & WORD_AND;
}

/* A command is one where it stands first, or behind words of courtesy. */
static bool is_command(const struct speaker *s, size_t i)
{
    static const char *const before[] = {"you", "u",  "to",    "please", "kindly", "i",
                                         "we",  "me", "would", "and",    "let's"};
    const struct token *t = token_at(s, i);
    if (s->begun || !has(t, WORD_COMMAND))
        return false;
    bool is = i == 0 || t->first;
    for (size_t k = 0; k < sizeof before / sizeof before[0] && !is; k++)
        is = is_word(token_at(s, i - 1), before[k]);
    return is;
}

/* "Hello, …", "hi can you …", "…, thanks!" */
static bool is_greeting(const struct speaker *s, size_t i)
{
    const struct token *next = token_at(s, i + 1);
    return has(token_at(s, i), WORD_GREETING) && token_at(s, i)->first &&
           (next->kind == TOKEN_STOP || has(next, WORD_FRAME | WORD_COMMAND | WORD_GREETING));
}

/* "Tell me …", "… to me"; "there are". Elsewhere these words refer to a person or a place. */
static bool is_filler(const struct speaker *s, size_t i)
{
    const struct token *t = token_at(s, i), *next = token_at(s, i + 1), *before = i > 0 ? token_at(s, i - 1) : NULL;
    if (is_word(t, "me") || is_word(t, "us"))
        return !s->begun || (before && (is_word(before, "to") || is_word(before, "for")) &&
                             (next->kind == TOKEN_STOP || is_word(next, "please")));
    return is_word(t, "there") && ((before && has(before, WORD_AUXILIARY)) || has(next, WORD_AUXILIARY));
}

/* A word without weight in the tables that has weight here: "a can", "vitamin a", "look for", "to log in". */
static bool has_weight(const struct speaker *s, size_t i)
{
    const struct token *t = token_at(s, i), *next = token_at(s, i + 1), *before = i > 0 ? token_at(s, i - 1) : NULL;
    unsigned f = t->word.flags;
    if (!before || !(f & WORD_FRAME))
        return false;
    bool noun = (is_word(before, "a") || is_word(before, "an") || is_word(before, "the") || is_word(before, "my") ||
                 is_word(before, "your")) &&
                !(f & WORD_ARTICLE) && (!t->word.mark || t->word.mark >= MARK_CAN);
    bool letter = (is_word(t, "a") || is_word(t, "i")) && s->join == JOIN_NEXT && has(before, WORD_LETTERED);
    bool first_person = is_word(t, "i") && s->join == JOIN_NEXT && s->out->n > 0 && next->kind == TOKEN_STOP;
    bool verb = has(before, WORD_PHRASAL) && !(i > 1 && has(token_at(s, i - 2), WORD_ARTICLE)) && !is_word(t, "of");
    bool particle = f & WORD_PREPOSITION && (verb || next->kind == TOKEN_STOP);
    return noun || letter || first_person || particle;
}

/* "An explanation of", "all about"; but "all of the dogs" is not "the dogs". */
static bool leads_to(const struct token *t, const struct token *next)
{
    if (!(t->word.flags & WORD_BEFORE_OF) || !has(next, WORD_OF))
        return false;
    return is_word(next, "about") || !(is_word(t, "all") || is_word(t, "more"));
}

static void say_word(struct speaker *s, size_t i)
{
    const struct token *t = token_at(s, i);
    unsigned f = t->word.flags;
    bool behind_number = i > 0 && token_at(s, i - 1)->kind == TOKEN_NUMBER;
    bool name = !s->title && !is_i(t) && (t->caps || (t->capital && !t->first));
    if (is_greeting(s, i))
        return;
    if (name && f & (WORD_FRAME | WORD_COMMAND | WORD_NOT)) {
        say(s, SAID_NAME, t->as_is, 0); /* the US, Her */
        return;
    }
    if (has(t, WORD_AUXILIARY) && !is_courtesy(s, i)) {
        bool you = is_word(token_at(s, i + 1), "you"), me = is_word(token_at(s, i + 1), "i");
        s->persons |= you ? LEAN_OTHER : me ? LEAN_SELF : 0;
        s->out->marks |= t->first && !s->begun ? 1u << MARK_YES_NO : 0;
    }
    if (is_courtesy(s, i) && t->word.leans & LEAN_FUTURE) {
        s->join = JOIN_PARTED; /* "will you explain" is no future */
        return;
    }
    note(s, i);
    const size_t n_before = s->out->n;
    if (has_weight(s, i))
        say(s, SAID_WORD, t->word.concept, 0);
    else if (f & WORD_NOT)
        say_not(s, t);
    else if (f & WORD_FRAME)
        pass_frame(s, t);
    else if (is_filler(s, i) || is_command(s, i) || leads_to(t, token_at(s, i + 1)))
        s->join = JOIN_PARTED;
    else if (f & WORD_UNIT && (!(f & WORD_AFTER_NUMBER) || behind_number))
        say(s, SAID_UNIT, t->word.concept, 0);
    else
        say(s, name ? SAID_NAME : SAID_WORD, t->word.concept, t->bare);
    if (s->out->n > n_before && !(f & WORD_NOT))
        say_how(s, t);
    if (f & WORD_OPENS && !(f & WORD_FRAME))
        s->join = JOIN_PARTED;
}

/* "$5" says what "5 dollars" says. */
static size_t say_price(struct speaker *s, size_t i)
{
    say(s, SAID_NUMBER, token_at(s, i + 1)->word.concept, 0);
    say(s, SAID_UNIT, token_at(s, i)->word.concept, 0);
    return i + 2;
}

static size_t say_token(struct speaker *s, size_t i)
{
    const struct token *t = token_at(s, i), *next = token_at(s, i + 1);
    bool number = t->kind == TOKEN_NUMBER;
    if (t->kind == TOKEN_STOP) {
        s->join = JOIN_PARTED;
    } else if ((has(t, WORD_NUMBER) && !is_pronoun(s, i)) ||
               (number && t->word.value > 0 && has(next, WORD_NUMBER) && next->word.value >= 100)) {
        return say_spelled(s, i);
    } else if (is_word(t, "one")) {
        s->join = JOIN_PARTED;
    } else if (has(t, WORD_UNIT) && !t->first && next->kind == TOKEN_NUMBER &&
               t->word.concept == word_look_up("dollar", 6).concept) {
        return say_price(s, i);
    } else if (t->kind == TOKEN_WORD) {
        say_word(s, i);
    } else {
        say(s, number ? SAID_NUMBER : t->kind == TOKEN_SIGN ? SAID_WORD : SAID_NAME, t->word.concept, 0);
    }
    return i + 1;
}

/* ---- order ---- */

/* Items that stand side by side are a run; runs that belong together become a group, a list of runs. */
struct run {
    uint16_t first, end; /* items */
    uint16_t next;       /* run of the same group, NO_RUN: none */
};
#define NO_RUN UINT16_MAX
struct group {
    uint16_t head, tail;
    uint8_t join;
    uint64_t hash;
};
struct order {
    struct said_item items[SAID_MAX];
    struct run runs[SAID_MAX];
    struct group groups[SAID_MAX]; /* those of the end of the text first */
    size_t n_runs, n_groups;
};

static void cut_runs(const struct said *said, struct order *o)
{
    o->n_runs = 0;
    for (size_t i = 0; i < said->n; i++) {
        if (i == 0 || said->items[i].join != JOIN_NEXT)
            o->runs[o->n_runs++] = (struct run){.first = (uint16_t)i, .next = NO_RUN};
        o->runs[o->n_runs - 1].end = (uint16_t)(i + 1);
    }
}

/* From the end: "A of B of C" is C B A. */
static void fold(const struct said *said, struct order *o)
{
    o->n_groups = 0;
    for (size_t i = o->n_runs; i-- > 0;) {
        struct group g = {.head = (uint16_t)i, .tail = (uint16_t)i, .join = said->items[o->runs[i].first].join};
        struct group *last = o->n_groups > 0 ? &o->groups[o->n_groups - 1] : NULL;
        if (last && last->join == JOIN_OF) {
            o->runs[last->tail].next = g.head;
            last->tail = g.tail;
            last->join = g.join;
        } else {
            o->groups[o->n_groups++] = g;
        }
    }
    for (size_t i = 0; i < o->n_groups; i++) {
        struct group *g = &o->groups[i];
        g->hash = 1;
        for (uint16_t r = g->head; r != NO_RUN; r = o->runs[r].next)
            for (uint16_t k = o->runs[r].first; k < o->runs[r].end; k++) {
                uint64_t two[2] = {g->hash, said->items[k].hash};
                g->hash = word_hash('g', (const char *)two, sizeof two);
            }
    }
}

static void swap_groups(struct group *a, struct group *b)
{
    struct group c = *a;
    uint8_t join = a->join;
    *a = *b;
    *b = c;
    b->join = a->join;
    a->join = join;
}

/* "between A and B" is "between B and A", "A or B" is "B or A"; "to A from B" is "from B to A". groups run from the end of the text to its beginning. */
static void sort_groups(struct order *o, bool turns)
{
    for (size_t i = turns ? o->n_groups : 0; i-- > 0;)
        for (size_t k = i;
             k + 1 < o->n_groups && o->groups[k].join == JOIN_AND && o->groups[k].hash < o->groups[k + 1].hash; k++)
            swap_groups(&o->groups[k], &o->groups[k + 1]);
    for (size_t i = o->n_groups; i-- > 1;)
        if (o->groups[i].join == JOIN_TO && o->groups[i - 1].join == JOIN_FROM) {
            struct group c = o->groups[i];
            o->groups[i] = o->groups[i - 1];
            o->groups[i - 1] = c;
        }
}

static void put_in_order(struct said *said, bool turns)
{
    struct order o;
    size_t n = 0;
    cut_runs(said, &o);
    fold(said, &o);
    sort_groups(&o, turns);
    for (size_t i = o.n_groups; i-- > 0;)
        for (uint16_t r = o.groups[i].head; r != NO_RUN; r = o.runs[r].next)
            for (uint16_t k = o.runs[r].first; k < o.runs[r].end; k++)
                o.items[n++] = said->items[k];
    memcpy(said->items, o.items, n * sizeof o.items[0]);
}

/* Where nothing is joined there is one thing to deny, and it does not matter where: "isn't X Y", "X is not Y". */
static void drop_nots(struct said *said)
{
    size_t n = 0;
    for (size_t i = 0; i < said->n; i++)
        if (said->items[i].kind != SAID_NOT)
            said->items[n++] = said->items[i];
    said->n = n;
}

void said_read(const char *text, size_t n, struct said *out)
{
    struct tokens tokens;
    tokens_read(text, n, &tokens);
    struct speaker s = {.tokens = &tokens, .out = out, .title = is_title(&tokens)};
    out->n = 0;
    out->marks = out->leans = out->n_the = 0;
    out->has_past = false;
    out->cased = tokens.cased;
    out->nots = 0;
    memset(out->poles, 0, sizeof out->poles);
    out->plain = tokens.plain;
    out->language = language_of(&tokens);
    out->script = tokens.script;
    out->only_plain = tokens.too_many || tokens.script != 0 || out->language > LANGUAGE_ENGLISH;
    for (size_t i = 0; i < tokens.n;)
        i = say_token(&s, i);
    if (!s.joined)
        drop_nots(out);
    if (out->marks & 1u << MARK_HOW) /* "how can I", "how do I" */
        out->marks &= ~(s.anybody_can ? 1u << MARK_CAN : 0);
    else
        out->leans |= s.persons;
    out->only_plain = out->only_plain || out->n == 0;
    /* The sequence of actions: "and" alone keeps its order. */
    put_in_order(out, s.turns && !(out->marks & 1u << MARK_OR && s.keeps));
}
