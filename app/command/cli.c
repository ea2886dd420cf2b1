#include "app/command/cli.h"

#include "base/encoding/number.h"
#include "base/encoding/suggest.h"
#include "base/log.h"

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

/* Returns whether `names` ("port,p") contains exactly name[0..n). Underscores in the typed name count as dashes. */
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

static size_t count_options(const struct cli_command *command)
{
    size_t n = 0;
    for (const struct cli_option *o = command->options; o->names; o++)
        n += o->kind != CLI_GROUP;
    return n;
}

static bool has_short_help(const struct cli_command *command)
{
    return count_options(command) > CLI_SHORT_HELP_ABOVE;
}

/* dashes: as typed. */
static int unknown(const struct cli_command *command, const char *dashes, const char *name, size_t n,
                   struct quire_error *err)
{
    struct suggest near = suggest_begin(name, n);
    for (const struct cli_option *o = command->options; o->names; o++)
        if (o->kind != CLI_GROUP)
            suggest_try_list(&near, o->names);
    suggest_try_list(&near, "help");
    if (n > 4 && strncmp(name, "no-", 3) == 0 && !near.best) {
        near = suggest_begin(name + 3, n - 3);
        for (const struct cli_option *o = command->options; o->names; o++)
            if (o->kind == CLI_FLAG)
                suggest_try_list(&near, o->names);
        if (near.best)
            return quire_fail(err, QUIRE_INVALID, "unknown option %s%.*s; did you mean --no-%.*s?", dashes, (int)n,
                              name, (int)near.n_best, near.best);
    }
    if (near.best)
        return quire_fail(err, QUIRE_INVALID, "unknown option %s%.*s; did you mean --%.*s?", dashes, (int)n, name,
                          (int)near.n_best, near.best);
    return quire_fail(err, QUIRE_INVALID, "unknown option %s%.*s; quire %s --help%s lists all options", dashes, (int)n,
                      name, command->name, has_short_help(command) ? " all" : "");
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
    uint64_t whole = 0;
    double real = 0;
    char *end = NULL;
    errno = 0;
    if (o->kind == CLI_BYTES) {
        if (cli_parse_bytes(value, &whole) != QUIRE_OK)
            return quire_fail(err, QUIRE_INVALID, "\"%s\" is not a size; write 1048576, 512M or 4GiB", value);
        real = (double)whole;
    } else if (o->kind == CLI_F64) {
        const char *at = value + (value[0] == '-');
        if (!quire_take_number(&at, DBL_MAX, &real) || *at)
            return quire_fail(err, QUIRE_INVALID, "\"%s\" is not a number", value);
        real = value[0] == '-' ? -real : real;
    } else {
        whole = isdigit((unsigned char)value[0]) ? strtoull(value, &end, 10) : 0;
        uint64_t most = o->kind == CLI_U32 ? UINT32_MAX : UINT64_MAX;
        if (!end || *end || errno || whole > most)
            return quire_fail(err, QUIRE_INVALID, "\"%s\" is not a whole number", value);
        real = (double)whole;
    }
    if (o->min > 0 && o->max == 0 && real < o->min)
        return quire_fail(err, QUIRE_INVALID, "must be at least %.10g, got %s", o->min, value);
    const bool has_most = o->max != 0 || o->min < 0;
    if (has_most && (real < o->min || real > o->max))
        return quire_fail(err, QUIRE_INVALID, "must be between %.10g and %.10g, got %s", o->min, o->max, value);
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
            return quire_fail(err, QUIRE_INVALID, "more than %d values", CLI_MAX_LIST);
        list->items[list->n++] = value;
        return QUIRE_OK;
    }
    if (o->kind == CLI_PARSED)
        return o->parse(value, o->target, err);
    return set_number(o, value, err);
}

/* A command line while it is parsed. */
struct reading {
    const struct cli_command *command;
    int argc, i;
    char **argv;
    const char *dashes; /* of the option at argv[i] */
    const char *positionals[4], *first; /* first: set by an option */
    size_t n_positionals;
    const struct cli_foreign *taken[CLI_MAX_TAKEN]; /* options of other engines that change nothing */
    size_t n_taken;
};

/* Returns the value of the option argv[i] named name[0..n): the text after '=', or the next argument. NULL: no value.
 */
static const char *take_value(struct reading *r, const char *name, size_t n, const char *value, struct quire_error *err)
{
    if (name[n] == '=')
        return name + n + 1;
    if (r->i + 1 < r->argc)
        return r->argv[++r->i];
    quire_fail(err, QUIRE_INVALID, "%s%.*s needs a value: %s", r->dashes, (int)n, name, value);
    return NULL;
}

/* Returns whether the option at argv[i] stands without a value that it may have. */
static bool is_bare(const struct reading *r, const struct cli_foreign *f)
{
    const char *next = r->i + 1 < r->argc ? r->argv[r->i + 1] : "";
    return f->accepts[0] == ',' && (!*next || !has_name(f->accepts, next, strlen(next)));
}

/* An option of another engine. If it requests Quire's normal behaviour, it is accepted and logged. */
static int read_foreign(struct reading *r, const struct cli_foreign *f, const char *name, size_t n,
                        struct quire_error *err)
{
    const char *typed = r->argv[r->i];
    const int n_typed = (int)(name + n - typed);
    bool is_flag = f->accepts && !*f->accepts;
    bool is_negated = strncmp(name, "no-", 3) == 0 && !has_name(f->names, name, n);
    if (!f->accepts || (is_flag && (is_negated || name[n] == '=')))
        return quire_fail(err, QUIRE_INVALID, "%.*s: %s", n_typed, typed, f->says);
    if (!is_flag && (name[n] == '=' || !is_bare(r, f))) {
        const char *value = take_value(r, name, n, f->accepts, err);
        if (!value)
            return QUIRE_INVALID;
        if (!has_name(f->accepts, value, strlen(value)))
            return quire_fail(err, QUIRE_INVALID, "%.*s %.60s: %s", n_typed, typed, value, f->says);
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

/* An option that the command does not have. */
static int read_other(struct reading *r, const char *name, size_t n, struct quire_error *err)
{
    const struct cli_command *command = r->command;
    if (command->first_names && has_name(command->first_names, name, n)) {
        const char *value = take_value(r, name, n, "MODEL", err);
        if (value && r->first)
            return quire_fail(err, QUIRE_INVALID, "%s%.*s: MODEL \"%.200s\" is already set", r->dashes, (int)n, name,
                              r->first);
        r->first = value;
        return value ? QUIRE_OK : QUIRE_INVALID;
    }
    const struct cli_foreign *foreign = find_foreign(command, name, n);
    return foreign ? read_foreign(r, foreign, name, n, err) : unknown(command, r->dashes, name, n, err);
}

/* Reads the option at argv[i] with its values. */
static int read_option(struct reading *r, struct quire_error *err)
{
    r->dashes = r->argv[r->i][1] == '-' ? "--" : "-";
    const char *arg = r->argv[r->i] + strlen(r->dashes);
    size_t n = strcspn(arg, "=");
    bool negated;
    const struct cli_option *o = find(r->command, arg, n, &negated);
    if (!o)
        return read_other(r, arg, n, err);
    if (o->given)
        *o->given = true;
    if (o->kind == CLI_FLAG) {
        if (arg[n] == '=')
            return quire_fail(err, QUIRE_INVALID, "%s%.*s takes no value", r->dashes, (int)n, arg);
        *(bool *)o->target = !negated;
        return QUIRE_OK;
    }
    const char *value = take_value(r, arg, n, o->value, err);
    if (!value)
        return QUIRE_INVALID;
    int status = set_option(o, value, err);
    while (status == QUIRE_OK && o->kind == CLI_LIST && arg[n] != '=' && r->i + 1 < r->argc &&
           r->argv[r->i + 1][0] != '-')
        status = set_option(o, r->argv[++r->i], err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "%s%.*s", r->dashes, (int)n, arg);
    return status;
}

static int too_many(const struct cli_command *command, const char *arg, struct quire_error *err)
{
    const bool has_prompt = strstr(command->usage, "PROMPT") != NULL;
    return quire_fail(err, QUIRE_INVALID, "\"%s\" is one argument too many; %susage: %s", arg,
                      has_prompt ? "put a prompt of several words in quotes; " : "", command->usage);
}

/* Assigns the arguments without a name. */
static int place_positionals(const struct reading *r, struct quire_error *err)
{
    const struct cli_command *command = r->command;
    size_t n_slots = 0, at = 0;
    while (n_slots < 4 && command->positionals[n_slots])
        n_slots++;
    if (r->first)
        *command->positionals[at++] = r->first;
    for (size_t i = 0; i < r->n_positionals; i++) {
        if (at == n_slots)
            return too_many(command, r->positionals[i], err);
        *command->positionals[at++] = r->positionals[i];
    }
    return QUIRE_OK;
}

/* --help, --help all and --help=all, wherever they are on the command line. */
static int find_help(int argc, char **argv, enum cli_help *help, struct quire_error *err)
{
    *help = CLI_HELP_NONE;
    for (int i = 0; i < argc && *help == CLI_HELP_NONE; i++) {
        const bool is_help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        if (is_help)
            *help = i + 1 < argc && strcmp(argv[i + 1], "all") == 0 ? CLI_HELP_ALL : CLI_HELP_COMMON;
        else if (strcmp(argv[i], "--help=all") == 0)
            *help = CLI_HELP_ALL;
        else if (strncmp(argv[i], "--help=", 7) == 0)
            return quire_fail(err, QUIRE_INVALID, "--help: must be all or without a value, got %s", argv[i] + 7);
    }
    return QUIRE_OK;
}

/* The reason why other values are not supported is also why this one changes nothing. */
static void log_taken(const struct cli_foreign *f)
{
    const char *says = f->says, *colon = strchr(says, ':');
    if (colon && strncmp(says, "not supported", strlen("not supported")) == 0)
        says = colon + 2;
    quire_log(QUIRE_LOG_INFO, "quire", "--%.*s changes nothing: %s", (int)strcspn(f->names, ","), f->names, says);
}

int cli_parse(const struct cli_command *command, int argc, char **argv, enum cli_help *help, struct quire_error *err)
{
    struct reading r = {.command = command, .argc = argc, .argv = argv};
    bool only_positionals = false;
    int status = find_help(argc, argv, help, err);
    if (*help != CLI_HELP_NONE)
        return status;
    for (; r.i < argc && status == QUIRE_OK; r.i++) {
        const char *arg = argv[r.i];
        if (!only_positionals && strcmp(arg, "--") == 0)
            only_positionals = true;
        else if (!only_positionals && arg[0] == '-' && arg[1])
            status = read_option(&r, err);
        else if (command->arguments && command->arguments->n < CLI_MAX_LIST)
            command->arguments->items[command->arguments->n++] = arg;
        else if (!command->arguments && r.n_positionals < 4)
            r.positionals[r.n_positionals++] = arg;
        else
            status = too_many(command, arg, err);
    }
    if (status == QUIRE_OK)
        status = place_positionals(&r, err);
    for (size_t i = 0; status == QUIRE_OK && i < r.n_taken; i++)
        log_taken(r.taken[i]);
    return status;
}

/* Prints text[0..n) wrapped at `width`, each line indented, the first one continuing at column `at`. */
static void print_wrapped(const char *text, size_t n, size_t at, size_t indent, size_t width)
{
    const char *end = text + n;
    size_t column = at;
    while (text < end) {
        size_t word = strcspn(text, " \n");
        if (word > (size_t)(end - text))
            word = (size_t)(end - text);
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
        text += text < end;
    }
    putchar('\n');
}

static size_t first_sentence(const char *text)
{
    const char *end = strstr(text, ". ");
    return end ? (size_t)(end - text) + 1 : strlen(text);
}

static size_t first_line(const char *text)
{
    return strcspn(text, "\n");
}

static void print_option(const struct cli_option *o, bool is_short, size_t width)
{
    char left[96];
    int name_len = (int)strcspn(o->names, ",");
    bool on = o->kind == CLI_FLAG && *(bool *)o->target;
    int n = snprintf(left, sizeof left, "  --%s%.*s%s%s", on ? "[no-]" : "", name_len, o->names, o->value ? " " : "",
                     o->value ? o->value : "");
    printf("%s", left);
    size_t at = (size_t)n;
    if (at > 32) {
        putchar('\n');
        at = 0;
    }
    printf("%*s", (int)(34 - at), "");
    print_wrapped(o->help, is_short ? first_sentence(o->help) : strlen(o->help), 34, 34, width);
}

/* The heading of a group is printed before the first option that is shown. */
static void print_options(const struct cli_command *command, bool is_short, size_t width)
{
    const char *heading = NULL;
    for (const struct cli_option *o = command->options; o->names; o++) {
        if (o->kind == CLI_GROUP) {
            heading = o->names;
            continue;
        }
        if (is_short && !o->common)
            continue;
        if (heading)
            printf("\n%s\n", heading);
        heading = NULL;
        print_option(o, is_short, width);
    }
}

void cli_print_help(const struct cli_command *command, enum cli_help help)
{
    struct winsize window;
    size_t width = 100;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col >= 60)
        width = window.ws_col < 120 ? window.ws_col : 120;
    const bool is_short = help == CLI_HELP_COMMON && has_short_help(command);

    printf("usage: %s\n\n%s\n", command->usage, command->about);
    if (command->first_names && !is_short)
        printf(
            "\n--model MODEL is accepted for MODEL. Options of other engines that Quire does not have, or that have\n"
            "another name here, are errors that say what to write instead.\n");
    print_options(command, is_short, width);
    const char *examples = command->examples;
    if (examples && is_short) {
        const char *first = examples + first_line(examples) + 1;
        printf("\nexample:\n%.*s\n", (int)first_line(first), first);
    } else if (examples) {
        printf("\n%s\n", examples);
    }
    if (is_short)
        printf("\nThese are the common options. quire %s --help all shows all %zu.\n", command->name,
               count_options(command));
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
