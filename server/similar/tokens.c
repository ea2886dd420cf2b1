#include "server/similar/tokens.h"

#include <string.h>

enum {
    SCRIPT_LATIN,
    SCRIPT_GREEK,
    SCRIPT_CYRILLIC,
    SCRIPT_HEBREW,
    SCRIPT_ARABIC,
    SCRIPT_INDIC,
    SCRIPT_THAI,
    SCRIPT_KANA,
    SCRIPT_HAN,
    SCRIPT_HANGUL,
    SCRIPT_OTHER,
    N_SCRIPTS
};

struct reader {
    const unsigned char *text;
    size_t n, at;
    struct tokens *out;
    uint32_t closes;   /* the character that ends the open quotation; 0: no quotation is open */
    bool payload;      /* all from here on is literal */
    bool stopped;      /* a sentence begins */
    uint32_t letters[N_SCRIPTS];
};

/* ---- characters ---- */

/* The character at `at`, 0 behind the end; what is no UTF-8 is a letter of its own, of one byte. */
static uint32_t character(const struct reader *r, size_t at, size_t *n_bytes)
{
    *n_bytes = 1;
    if (at >= r->n)
        return 0;
    const unsigned char *p = r->text + at;
    if (p[0] < 0x80)
        return p[0] ? p[0] : 1;
    size_t n = p[0] >= 0xf0 && p[0] < 0xf8 ? 4 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : 0;
    if (n == 0 || n > r->n - at)
        return 0xfffd;
    uint32_t c = p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0xfffd;
        c = c << 6 | (p[i] & 0x3f);
    }
    *n_bytes = n;
    return c;
}

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_blank(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xa0 || c == 0x3000 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x202f;
}

/* The characters above U+007F that separate words. Every other one counts as a letter. */
static bool is_mark(uint32_t c)
{
    return c == 0xa1 || c == 0xbf || c == 0xab || c == 0xbb || (c >= 0x2010 && c <= 0x201f) || c == 0x2026 ||
           c == 0x3001 || c == 0x3002 || c == 0xff01 || c == 0xff0c || c == 0xff1f || c == 0xa3 || c == 0xa5 ||
           c == 0xb0 || c == 0x20ac || c == 0x20b9;
}

static bool is_letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 0x80 && !is_mark(c) && !is_blank(c));
}

static bool is_apostrophe(uint32_t c)
{
    return c == '\'' || c == 0x2019;
}

static int script_of(uint32_t c)
{
    static const struct {
        uint32_t first, last;
        int script;
    } ranges[] = {{'A', 0x2af, SCRIPT_LATIN},    {0x370, 0x3ff, SCRIPT_GREEK},   {0x400, 0x52f, SCRIPT_CYRILLIC},
                  {0x590, 0x5ff, SCRIPT_HEBREW}, {0x600, 0x77f, SCRIPT_ARABIC},  {0x900, 0xdff, SCRIPT_INDIC},
                  {0xe00, 0xeff, SCRIPT_THAI},   {0x1e00, 0x1eff, SCRIPT_LATIN}, {0x3040, 0x30ff, SCRIPT_KANA},
                  {0x3400, 0x9fff, SCRIPT_HAN},  {0xac00, 0xd7af, SCRIPT_HANGUL}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return ranges[i].script;
    return SCRIPT_OTHER;
}

/* These write no blanks between words: each character is one. */
static bool stands_alone(uint32_t c)
{
    int script = script_of(c);
    return script == SCRIPT_KANA || script == SCRIPT_HAN || script == SCRIPT_THAI;
}

/* ---- adding ---- */

static void add(struct reader *r, const struct token *t)
{
    struct tokens *out = r->out;
    if (t->kind != TOKEN_STOP) {
        uint64_t two[2] = {out->plain, t->as_is}, three[2] = {out->cased, t->is_cased ? t->cased : t->as_is};
        out->plain = word_hash('p', (const char *)two, sizeof two);
        out->cased = word_hash('p', (const char *)three, sizeof three);
    } else if (r->stopped) {
        return; /* one end is enough */
    }
    if (out->n < TOKENS_MAX) {
        out->items[out->n] = *t;
        out->items[out->n++].first = r->stopped;
    } else {
        out->too_many = true;
    }
    r->stopped = t->kind == TOKEN_STOP;
}

static bool in_literal(const struct reader *r)
{
    return r->payload || r->closes;
}

/* The bytes [from, at) as they stand. */
static void add_raw(struct reader *r, enum token_kind kind, size_t from)
{
    uint64_t hash = word_hash(kind == TOKEN_LITERAL ? 'q' : 'n', (const char *)r->text + from, r->at - from);
    add(r, &(struct token){.kind = (uint8_t)kind, .as_is = hash, .word.concept = hash});
}

static void add_stop(struct reader *r)
{
    add(r, &(struct token){.kind = TOKEN_STOP});
}

/* A word of the tables' that the text has in another form. */
static void add_known(struct reader *r, const char *word)
{
    size_t n = strlen(word);
    struct token t = {.kind = TOKEN_WORD, .as_is = word_hash('x', word, n), .word = word_look_up(word, n)};
    r->out->usual[LANGUAGE_ENGLISH] += (t.word.flags & (WORD_FRAME | WORD_COMMAND | WORD_NOT)) != 0;
    add(r, &t);
}

/* ---- words ---- */

static uint64_t bare_of(const char *lower, size_t n)
{
    static const char *const heads[] = {"un", "non", "dis", "in", "im"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        size_t k = strlen(heads[i]);
        if (n >= k + 3 && memcmp(lower, heads[i], k) == 0)
            return word_look_up(lower + k, n - k).concept;
    }
    return 0;
}

/* "n't", "'s", …: of lower[n], which has one, the length without it; the words that it stands for come later, by *after. */
static size_t cut_contraction(const char *lower, size_t n, const char **after)
{
    static const struct {
        const char *end, *after;
    } ends[] = {{"n't", "not"}, {"'s", NULL}, {"'re", "are"}, {"'ve", NULL},
                {"'d", NULL},   {"'m", "am"}, {"'ll", "will"}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t k = strlen(ends[i].end);
        if (n > k && memcmp(lower + n - k, ends[i].end, k) == 0) {
            *after = ends[i].after;
            return n - k;
        }
    }
    return n > 1 && lower[n - 1] == '\'' ? n - 1 : n;
}

/* Lower case of ASCII and one kind of apostrophe; what is longer than a word of the tables is cut, and hashed whole. */
static size_t lower_case(const struct reader *r, size_t from, char lower[WORD_MAX_BYTES], bool *capital, bool *caps)
{
    size_t n = 0, n_upper = 0, n_letters = 0;
    for (size_t i = from; i < r->at && n < WORD_MAX_BYTES; i++) {
        unsigned char c = r->text[i];
        bool upper = c >= 'A' && c <= 'Z';
        n_upper += upper;
        n_letters += upper || (c >= 'a' && c <= 'z') || c >= 0x80;
        if (c == 0xe2 && i + 2 < r->at && r->text[i + 1] == 0x80 && r->text[i + 2] == 0x99) {
            lower[n++] = '\'';
            i += 2;
        } else {
            lower[n++] = (char)(upper ? c + 32 : c);
        }
    }
    unsigned char c = r->text[from];
    *capital = (c >= 'A' && c <= 'Z') || (c == 0xc3 && from + 1 < r->n && r->text[from + 1] < 0x9f);
    *caps = n_upper >= 2 && n_upper == n_letters;
    return n;
}

/* Records the meaning of a word's capitals; `lower` holds its n bytes in lower case. */
static void mind_case(const struct reader *r, size_t from, const char *lower, size_t n, struct token *t)
{
    char raw[WORD_MAX_BYTES];
    size_t n_raw = r->at - from < n ? r->at - from : n, n_inner = 0;
    memcpy(raw, r->text + from, n_raw);
    if (r->stopped && n_raw > 0 && !t->caps)
        raw[0] = lower[0];
    for (size_t i = 1; i < n_raw; i++)
        n_inner += raw[i] >= 'A' && raw[i] <= 'Z';
    const bool is_unit = t->word.flags & WORD_UNIT, is_letter = n == 1 && lower[0] != 'a' && lower[0] != 'i';
    t->is_symbol = is_unit && n <= 3;
    t->is_cased = n_inner > 0 || is_letter || t->is_symbol || t->word.flags & WORD_CASED;
    t->folded = word_hash('f', lower, n);
    t->cased = word_hash('f', raw, n_raw);
    /* "Mb" is a megabit, "MB" a megabyte. */
    if (is_unit && n_raw == 2 && strchr("KMGT", raw[0]) && raw[1] == 'b')
        t->word.concept = word_hash('w', raw, n_raw);
}

static void add_word(struct reader *r, size_t from)
{
    char lower[WORD_MAX_BYTES];
    const char *after = NULL;
    struct token t = {.kind = TOKEN_WORD};
    size_t n = lower_case(r, from, lower, &t.capital, &t.caps);
    if (r->at - from > WORD_MAX_BYTES) {
        add_raw(r, TOKEN_NAME, from);
        return;
    }
    if (r->out->too_many) { /* only equality with the other text matters then */
        t.as_is = word_hash('x', (const char *)r->text + from, r->at - from);
        add(r, &t);
        return;
    }
    n = cut_contraction(lower, n, &after);
    if (after && n == 2 && memcmp(lower, "ca", 2) == 0)
        lower[n++] = 'n';
    else if (after && n == 2 && memcmp(lower, "wo", 2) == 0) {
        memcpy(lower, "will", 4);
        n = 4;
    }
    t.word = word_look_up(lower, n);
    t.bare = bare_of(lower, n);
    t.as_is = word_hash(t.caps ? 'X' : 'x', lower, n);
    mind_case(r, from, lower, n, &t);
    r->out->usual[LANGUAGE_ENGLISH] += (t.word.flags & (WORD_FRAME | WORD_COMMAND | WORD_NOT)) != 0;
    r->out->usual[t.word.language] += t.word.language != LANGUAGE_NONE;
    add(r, &t);
    if (after)
        add_known(r, after);
}

static bool at_digit_or_letter(const struct reader *r, size_t at)
{
    size_t n;
    uint32_t c = character(r, at, &n);
    return is_digit(c) || is_letter(c);
}

/* Moves over letters, digits and the characters that join them. Returns true for an identifier or an address, false
 * for a plain word. */
static bool pass_word(struct reader *r)
{
    bool name = false;
    size_t from = r->at, k;
    for (uint32_t c; (c = character(r, r->at, &k)) != 0; r->at += k) {
        if (is_letter(c)) {
            if (r->at > from && stands_alone(c))
                break;
            r->letters[script_of(c)]++;
            name = name || c == '_';
            if (stands_alone(c)) {
                r->at += k;
                break;
            }
        } else if (is_digit(c)) {
            name = true;
        } else if ((c == '.' || c == '@') && at_digit_or_letter(r, r->at + k)) {
            name = true;
        } else if (!(is_apostrophe(c) && at_digit_or_letter(r, r->at + k))) {
            break;
        }
    }
    bool url = r->n - r->at > 3 && memcmp(r->text + r->at, "://", 3) == 0;
    while (url && r->at < r->n && !is_blank(character(r, r->at, &k)))
        r->at += k;
    while (r->at < r->n && (r->text[r->at] == '#' || (r->text[r->at] == '+' && !at_digit_or_letter(r, r->at + 1)))) {
        r->at++; /* C#, C++ */
        name = true;
    }
    return name || url;
}

static void read_word(struct reader *r)
{
    size_t from = r->at;
    bool name = pass_word(r);
    if (in_literal(r)) {
        add_raw(r, TOKEN_LITERAL, from);
        return;
    }
    if (!name) {
        add_word(r, from);
        return;
    }
    char lower[WORD_MAX_BYTES];
    bool capital, caps;
    size_t n = lower_case(r, from, lower, &capital, &caps);
    if (r->at - from > WORD_MAX_BYTES) {
        add_raw(r, TOKEN_NAME, from);
    } else {
        memcpy(lower, r->text + from, r->at - from); /* case matters in an identifier or an address */
        if (r->stopped && lower[0] >= 'A' && lower[0] <= 'Z')
            lower[0] = (char)(lower[0] + 32);
        n = r->at - from;
        uint64_t hash = word_hash('w', lower, n);
        add(r, &(struct token){.kind = TOKEN_NAME, .as_is = hash, .word.concept = hash, .capital = capital});
    }
}

/* ---- numbers ---- */

/* Removes the commas of "1,000,000.5" if they separate thousands; returns the remaining length. */
static size_t drop_commas(char *text, size_t n)
{
    size_t run = 0, n_commas = 0, whole = 0;
    while (whole < n && text[whole] != '.')
        whole++;
    for (size_t i = 0; i < whole; i++) {
        if (text[i] == ',') {
            if (n_commas > 0 ? run != 3 : run < 1 || run > 3)
                return n;
            n_commas++;
            run = 0;
        } else if (!is_digit((unsigned char)text[i])) {
            return n;
        } else {
            run++;
        }
    }
    if (n_commas == 0 || run != 3)
        return n;
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] != ',')
            text[k++] = text[i];
    return k;
}

static void add_number(struct reader *r, size_t from)
{
    char text[WORD_MAX_BYTES];
    size_t n = r->at - from;
    struct token t = {.kind = TOKEN_NUMBER};
    if (n > sizeof text) {
        t.as_is = t.word.concept = word_hash('#', (const char *)r->text + from, n);
    } else {
        memcpy(text, r->text + from, n);
        n = drop_commas(text, n);
        t.as_is = t.word.concept = word_hash('#', text, n);
        uint64_t value = 0;
        bool whole = n <= 12;
        for (size_t i = 0; i < n && whole; i++) {
            whole = is_digit((unsigned char)text[i]);
            value = value * 10 + (uint64_t)(text[i] - '0');
        }
        t.word.value = whole ? value : 0;
    }
    add(r, &t);
}

/* Digits, with one of . , : / - between two of them; letters behind them are a unit ("15mg") or make a name of all ("3d"). */
static void read_number(struct reader *r)
{
    size_t from = r->at, k;
    r->at += !is_digit(r->text[r->at]); /* its sign, or a point */
    while (r->at < r->n &&
           (is_digit(r->text[r->at]) ||
            (r->at + 1 < r->n && r->text[r->at] && strchr(".,:/-", r->text[r->at]) && is_digit(r->text[r->at + 1]))))
        r->at++;
    size_t digits = r->at;
    uint32_t c = character(r, r->at, &k);
    if (!is_letter(c) || stands_alone(c)) {
        add_number(r, from);
        return;
    }
    char lower[WORD_MAX_BYTES];
    bool capital, caps;
    bool name = pass_word(r);
    size_t end = r->at, n = lower_case(r, digits, lower, &capital, &caps);
    if (name || end - digits > WORD_MAX_BYTES || !(word_look_up(lower, n).flags & WORD_UNIT)) {
        add_raw(r, TOKEN_NAME, from);
        return;
    }
    r->at = digits;
    add_number(r, from);
    r->at = end;
    add_word(r, digits);
}

/* ---- signs ---- */

static const char *unit_of_sign(uint32_t c)
{
    return c == '$'      ? "dollar"
           : c == 0x20ac ? "euro"
           : c == 0xa3   ? "gbp"
           : c == 0xa5   ? "yen"
           : c == 0x20b9 ? "rupee"
           : c == '%'    ? "percent"
                         : NULL;
}

/* A quotation begins or ends; false: this character is no such mark here. */
static bool read_quote(struct reader *r, uint32_t c, size_t k)
{
    size_t unused;
    uint32_t before = r->at > 0 ? r->text[r->at - 1] : ' ', next = character(r, r->at + k, &unused);
    if (r->closes) {
        if (c != r->closes && !(r->closes == '\'' && c == 0x2019))
            return false;
        if (is_apostrophe(c) && (is_digit(next) || is_letter(next)))
            return false;
        r->closes = 0;
    } else if (c == '"' || c == '`') {
        r->closes = c;
    } else if (c == 0x201c || c == 0x201e) {
        r->closes = 0x201d;
    } else if (c == 0xab) {
        r->closes = 0xbb;
    } else if (c == '\'' || c == 0x2018) {
        if (is_digit(before) || is_letter(before) || !(is_digit(next) || is_letter(next)))
            return false;
        r->closes = c == '\'' ? '\'' : 0x2019;
    } else {
        return false;
    }
    r->at += k;
    return true;
}

static void read_sign(struct reader *r, uint32_t c, size_t k)
{
    size_t from = r->at, unused;
    uint32_t next = character(r, from + k, &unused), before = from > 0 ? r->text[from - 1] : ' ';
    r->at += k;
    const char *unit = unit_of_sign(c);
    bool behind_number = r->out->n > 0 && r->out->items[r->out->n - 1].kind == TOKEN_NUMBER;
    bool tight = (is_digit(before) || is_letter(before)) && (is_digit(next) || is_letter(next));
    if (in_literal(r)) {
        add_raw(r, TOKEN_LITERAL, from);
    } else if (unit) {
        add_known(r, unit);
    } else if (c == 0xb0) {
        if (next == 'C' || next == 'F') {
            r->at++;
            add_known(r, next == 'C' ? "celsius" : "fahrenheit");
        } else {
            add_known(r, "degree");
        }
    } else if (c == '&') {
        add_known(r, "and");
    } else if (c == ':' && (is_blank(next) || next == 0)) {
        r->payload = true;
    } else if (c == '.' || c == '?' || c == ',' || c == ';' || c == 0x2026 ||
               (c == '!' && !is_digit(before) && !is_letter(next) && next != '=')) {
        add_stop(r);
    } else if ((c == '-' && (tight || !(is_digit(next) || behind_number))) || is_apostrophe(c) ||
               (c >= 0x80 && is_mark(c))) {
        /* a hyphen, a dash, a quotation mark */
        if (!tight && c >= 0x80)
            add_stop(r);
    } else {
        add_raw(r, TOKEN_SIGN, from);
    }
}

/* "-d", "--force": a command's option, in which case matters. Returns false if the text is not an option. */
static bool read_option(struct reader *r)
{
    size_t from = r->at, unused;
    if (from > 0 && !is_blank(character(r, from - 1, &unused)) && !strchr("(`\"'", r->text[from - 1]))
        return false;
    size_t at = from;
    while (at < r->n && at < from + 2 && r->text[at] == '-')
        at++;
    if (at == from || at >= r->n || r->text[at] == '_' || r->text[at] >= 0x80 || !is_letter(r->text[at]))
        return false;
    while (at < r->n && r->text[at] < 0x80 && (is_letter(r->text[at]) || is_digit(r->text[at]) || r->text[at] == '-'))
        at++;
    r->at = at;
    add_raw(r, in_literal(r) ? TOKEN_LITERAL : TOKEN_NAME, from);
    return true;
}

static void read_one(struct reader *r)
{
    size_t k, unused;
    uint32_t c = character(r, r->at, &k), next = character(r, r->at + k, &unused);
    uint32_t before = r->at > 0 ? r->text[r->at - 1] : ' ';
    if (is_blank(c)) {
        r->at += k;
        r->payload = r->payload || (c == '\n' && r->out->n > 0);
    } else if (!is_apostrophe(c) && is_letter(c)) {
        read_word(r);
    } else if (c == '-' && read_option(r)) {
        return;
    } else if (is_digit(c) ||
               ((c == '-' || c == '.') && is_digit(next) && !is_digit(before) && !is_letter(before) && before != ')')) {
        read_number(r);
    } else if (r->payload || !read_quote(r, c, k)) {
        read_sign(r, c, k);
    }
}

void tokens_read(const char *text, size_t n, struct tokens *out)
{
    struct reader r = {.text = (const unsigned char *)text, .n = n, .out = out, .stopped = true};
    out->n = 0;
    out->too_many = false;
    out->plain = out->cased = 1;
    memset(out->usual, 0, sizeof out->usual);
    while (r.at < n)
        read_one(&r);
    out->script = SCRIPT_LATIN;
    for (int s = 0; s < N_SCRIPTS; s++)
        if (r.letters[s] > r.letters[out->script])
            out->script = (uint8_t)s;
}
