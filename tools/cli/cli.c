#include "tools/cli/cli.h"

#include "base/log.h"
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CLI_MAX_TAKEN 16

/* Does `names` ("port,p") hold exactly name[0..n)? Underscores in what was typed count as dashes. */
static bool has_name(const char *names, const char *name, size_t n)
{
    for (const char *at = names; *at;) {
        size_t len = strcspn(at, ",");
        bool same = len == n;
        for (size_t i = 0; same && i < n; i++)
            same = at[i] == (name[i] == '_' ? '-' : name[i]);
        if (same)
            return true;
        at += len + (at[len] == ',');
    }
    return false;
}

static const struct cli_option *find(const struct cli_command *command, const char *name, size_t n, bool *negated)
{
    *negated = false;
    for (const struct cli_option *o = command->options; o->names; o++)
        if (o->kind != CLI_GROUP && has_name(o->names, name, n))
            return o;
    if (n > 3 && strncmp(name, "no-", 3) == 0) {
        for (const struct cli_option *o = command->options; o->names; o++) {
            if (o->kind == CLI_FLAG && has_name(o->names, name + 3, n - 3)) {
                *negated = true;
                return o;
            }
        }
    }
    return NULL;
}

/* Levenshtein distance, for "did you mean". Names are short; the rows fit any we have. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m)
{
    unsigned row[65];
    if (n > 64 || m > 64)
        return 64;
    for (size_t j = 0; j <= m; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

static int unknown(const struct cli_command *command, const char *name, size_t n, struct quire_error *err)
{
    const char *near = NULL;
    unsigned best = 4;
    for (const struct cli_option *o = command->options; o->names; o++) {
        size_t m = strcspn(o->names, ",");
        unsigned d = o->kind == CLI_GROUP ? 64 : distance(name, n, o->names, m);
        if (d < best) {
            best = d;
            near = o->names;
        }
    }
    if (near)
        return quire_fail(err, QUIRE_INVALID, "unknown option --%.*s; did you mean --%.*s?", (int)n, name,
                          (int)strcspn(near, ","), near);
    return quire_fail(err, QUIRE_INVALID, "unknown option --%.*s; quire %s --help lists them all", (int)n, name,
                      command->name);
}

int cli_parse_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    const char *end = text;
    double value;
    if (!quire_take_number(&end, DBL_MAX, &value))
        return QUIRE_INVALID;
    if (*end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (!unit)
            return QUIRE_INVALID;
        value = ldexp(value, 10 * (int)(unit - units + 1));
        end++;
        if (strcmp(end, "") != 0 && strcasecmp(end, "B") != 0 && strcasecmp(end, "iB") != 0)
            return QUIRE_INVALID;
    }
    if (value >= 18446744073709551615.0)
        return QUIRE_INVALID;
    *out = (uint64_t)value;
    return QUIRE_OK;
}

static int set_number(const struct cli_option *o, const char *value, struct quire_error *err)
{
    int name_len = (int)strcspn(o->names, ",");
    uint64_t whole = 0;
    double real = 0;
    char *end = NULL;
    errno = 0;
    if (o->kind == CLI_BYTES) {
        if (cli_parse_bytes(value, &whole) != QUIRE_OK)
            return quire_fail(err, QUIRE_INVALID, "--%.*s: \"%s\" is not a size; write 1048576, 512M or 4GiB", name_len,
                              o->names, value);
        real = (double)whole;
    } else if (o->kind == CLI_F64) {
        const char *at = value + (value[0] == '-');
        if (!quire_take_number(&at, DBL_MAX, &real) || *at)
            return quire_fail(err, QUIRE_INVALID, "--%.*s: \"%s\" is not a number", name_len, o->names, value);
        real = value[0] == '-' ? -real : real;
    } else {
        whole = isdigit((unsigned char)value[0]) ? strtoull(value, &end, 10) : 0;
        uint64_t most = o->kind == CLI_U32 ? UINT32_MAX : UINT64_MAX;
        if (!end || *end || errno || whole > most)
            return quire_fail(err, QUIRE_INVALID, "--%.*s: \"%s\" is not a whole number", name_len, o->names, value);
        real = (double)whole;
    }
    if (o->min > 0 && o->max == 0 && real < o->min)
        return quire_fail(err, QUIRE_INVALID, "--%.*s: must be at least %.10g, got %s", name_len, o->names, o->min,
                          value);
    const bool has_most = o->max != 0 || o->min < 0;
    if (has_most && (real < o->min || real > o->max))
        return quire_fail(err, QUIRE_INVALID, "--%.*s: must be between %.10g and %.10g, got %s", name_len, o->names,
                          o->min, o->max, value);
    if (o->kind == CLI_U32)
        *(uint32_t *)o->target = (uint32_t)whole;
    else if (o->kind == CLI_F64)
        *(double *)o->target = real;
    else
        *(uint64_t *)o->target = whole;
    return QUIRE_OK;
}

static int set_option(const struct cli_option *o, const char *value, struct quire_error *err)
{
    if (o->kind == CLI_STRING) {
        *(const char **)o->target = value;
        return QUIRE_OK;
    }
    if (o->kind == CLI_LIST) {
        struct cli_list *list = o->target;
        if (list->n == CLI_MAX_LIST)
            return quire_fail(err, QUIRE_INVALID, "--%.*s: more than %d values", (int)strcspn(o->names, ","), o->names,
                              CLI_MAX_LIST);
        list->items[list->n++] = value;
        return QUIRE_OK;
    }
    if (o->kind == CLI_PARSED) {
        int status = o->parse(value, o->target, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "--%.*s", (int)strcspn(o->names, ","), o->names);
        return status;
    }
    return set_number(o, value, err);
}

/* A command line as it is read. */
struct reading {
    const struct cli_command *command;
    int argc, i;
    char **argv;
    const char *positionals[4], *first; /* first: by an option */
    size_t n_positionals;
    const struct cli_foreign *taken[CLI_MAX_TAKEN]; /* foreign ones that change nothing */
    size_t n_taken;
};

/* The value of the option argv[i], whose name is name[0..n): after its '=', or the next argument. NULL: there is none. */
static const char *take_value(struct reading *r, const char *name, size_t n, const char *value, struct quire_error *err)
{
    if (name[n] == '=')
        return name + n + 1;
    if (r->i + 1 < r->argc)
        return r->argv[++r->i];
    quire_fail(err, QUIRE_INVALID, "--%.*s needs a value: %s", (int)n, name, value);
    return NULL;
}

/* One of other engines. It is taken where it asks for what is so anyway, and then said in the log. */
static int read_foreign(struct reading *r, const struct cli_foreign *f, const char *name, size_t n,
                        struct quire_error *err)
{
    bool is_flag = f->accepts && !*f->accepts;
    bool is_negated = strncmp(name, "no-", 3) == 0 && !has_name(f->names, name, n);
    if (!f->accepts || (is_flag && (is_negated || name[n] == '=')))
        return quire_fail(err, QUIRE_INVALID, "--%.*s: %s", (int)n, name, f->says);
    if (!is_flag) {
        const char *value = take_value(r, name, n, f->accepts, err);
        if (!value)
            return QUIRE_INVALID;
        if (!has_name(f->accepts, value, strlen(value)))
            return quire_fail(err, QUIRE_INVALID, "--%.*s %.60s: %s", (int)n, name, value, f->says);
    }
    if (r->n_taken < CLI_MAX_TAKEN)
        r->taken[r->n_taken++] = f;
    return QUIRE_OK;
}

static const struct cli_foreign *find_foreign(const struct cli_command *command, const char *name, size_t n)
{
    for (const struct cli_foreign *f = command->foreign; f && f->names; f++)
        if (has_name(f->names, name, n) ||
            (n > 3 && strncmp(name, "no-", 3) == 0 && f->accepts && has_name(f->names, name + 3, n - 3)))
            return f;
    return NULL;
}

/* What is none of the command's own options. */
static int read_other(struct reading *r, const char *name, size_t n, struct quire_error *err)
{
    const struct cli_command *command = r->command;
    if (command->first_names && has_name(command->first_names, name, n)) {
        const char *value = take_value(r, name, n, "MODEL", err);
        if (value && r->first)
            return quire_fail(err, QUIRE_INVALID, "--%.*s: \"%.200s\" was named before", (int)n, name, r->first);
        r->first = value;
        return value ? QUIRE_OK : QUIRE_INVALID;
    }
    const struct cli_foreign *foreign = find_foreign(command, name, n);
    return foreign ? read_foreign(r, foreign, name, n, err) : unknown(command, name, n, err);
}

/* One option at argv[i], its values included. */
static int read_option(struct reading *r, struct quire_error *err)
{
    const char *arg = r->argv[r->i] + (r->argv[r->i][1] == '-' ? 2 : 1);
    size_t n = strcspn(arg, "=");
    bool negated;
    const struct cli_option *o = find(r->command, arg, n, &negated);
    if (!o)
        return read_other(r, arg, n, err);
    if (o->given)
        *o->given = true;
    if (o->kind == CLI_FLAG) {
        if (arg[n] == '=')
            return quire_fail(err, QUIRE_INVALID, "--%.*s takes no value", (int)n, arg);
        *(bool *)o->target = !negated;
        return QUIRE_OK;
    }
    const char *value = take_value(r, arg, n, o->value, err);
    int status = value ? set_option(o, value, err) : QUIRE_INVALID;
    while (status == QUIRE_OK && o->kind == CLI_LIST && arg[n] != '=' && r->i + 1 < r->argc &&
           r->argv[r->i + 1][0] != '-')
        status = set_option(o, r->argv[++r->i], err);
    return status;
}

/* Where the arguments without a name go. */
static int place_positionals(const struct reading *r, struct quire_error *err)
{
    const struct cli_command *command = r->command;
    size_t n_room = 0, at = 0;
    while (n_room < 4 && command->positionals[n_room])
        n_room++;
    if (r->first)
        *command->positionals[at++] = r->first;
    for (size_t i = 0; i < r->n_positionals; i++) {
        if (at == n_room)
            return quire_fail(err, QUIRE_INVALID, "\"%s\" is one argument too many; usage: %s", r->positionals[i],
                              command->usage);
        *command->positionals[at++] = r->positionals[i];
    }
    return QUIRE_OK;
}

int cli_parse(const struct cli_command *command, int argc, char **argv, bool *help, struct quire_error *err)
{
    struct reading r = {.command = command, .argc = argc, .argv = argv};
    bool only_positionals = false;
    int status = QUIRE_OK;
    *help = false;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = true;
            return QUIRE_OK;
        }
    for (; r.i < argc && status == QUIRE_OK; r.i++) {
        const char *arg = argv[r.i];
        if (!only_positionals && strcmp(arg, "--") == 0)
            only_positionals = true;
        else if (!only_positionals && arg[0] == '-' && arg[1])
            status = read_option(&r, err);
        else if (r.n_positionals < 4)
            r.positionals[r.n_positionals++] = arg;
        else
            status = quire_fail(err, QUIRE_INVALID, "\"%s\" is one argument too many; usage: %s", arg, command->usage);
    }
    if (status == QUIRE_OK)
        status = place_positionals(&r, err);
    for (size_t i = 0; status == QUIRE_OK && i < r.n_taken; i++)
        quire_log(QUIRE_LOG_INFO, "quire", "--%.*s changes nothing: %s", (int)strcspn(r.taken[i]->names, ","),
                  r.taken[i]->names, r.taken[i]->says);
    return status;
}

/* Prints text wrapped at `width`, each line indented, the first one continuing at column `at`. */
static void print_wrapped(const char *text, size_t at, size_t indent, size_t width)
{
    size_t column = at;
    while (*text) {
        size_t word = strcspn(text, " \n");
        if (column > indent && column + 1 + word > width) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)word, text);
        column += word;
        text += word;
        text += *text != 0;
    }
    putchar('\n');
}

void cli_print_help(const struct cli_command *command)
{
    struct winsize window;
    size_t width = 100;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col >= 60)
        width = window.ws_col < 120 ? window.ws_col : 120;

    printf("usage: %s\n\n%s\n", command->usage, command->about);
    if (command->first_names)
        printf(
            "\n--model MODEL may stand for MODEL, as with other engines. Their options that Quire has not, or calls by\n"
            "another name, are refused with what to write instead.\n");
    for (const struct cli_option *o = command->options; o->names; o++) {
        if (o->kind == CLI_GROUP) {
            printf("\n%s\n", o->names);
            continue;
        }
        char left[96];
        int name_len = (int)strcspn(o->names, ",");
        bool on = o->kind == CLI_FLAG && *(bool *)o->target;
        int n = snprintf(left, sizeof left, "  --%s%.*s%s%s", on ? "[no-]" : "", name_len, o->names,
                         o->value ? " " : "", o->value ? o->value : "");
        printf("%s", left);
        size_t at = (size_t)n;
        if (at > 32) {
            putchar('\n');
            at = 0;
        }
        printf("%*s", (int)(34 - at), "");
        print_wrapped(o->help, 34, 34, width);
    }
    if (command->examples)
        printf("\n%s\n", command->examples);
}

size_t cli_pick(const struct cli_command *command, int argc, char **argv, const struct cli_option *rows, size_t n,
                char **out)
{
    size_t n_out = 0;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *name = argv[i] + (argv[i][0] == '-') + (argv[i][0] == '-' && argv[i][1] == '-');
        const size_t n_name = strcspn(name, "=");
        bool negated;
        const struct cli_option *o = name == argv[i] ? NULL : find(command, name, n_name, &negated);
        const int first = i;
        if (o && o->kind != CLI_FLAG && name[n_name] != '=')
            i++;
        while (o && o->kind == CLI_LIST && name[n_name] != '=' && i + 1 < argc && argv[i + 1][0] != '-')
            i++;
        for (int at = first; o && o >= rows && o < rows + n && at <= i; at++)
            out[n_out++] = argv[at];
    }
    return n_out;
}

void cli_note_given(struct cli_option *rows, size_t n, bool *given)
{
    for (size_t i = 0; i < n; i++)
        if (!rows[i].given)
            rows[i].given = &given[i];
}

const char *cli_first_given(const struct cli_option *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (*rows[i].given)
            return rows[i].names;
    return NULL;
}
