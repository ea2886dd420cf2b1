#include "tools/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return QUIRE_INVALID;
    errno = 0;
    double value = strtod(text, &end);
    if (*end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (!unit)
            return QUIRE_INVALID;
        value = ldexp(value, 10 * (int)(unit - units + 1));
        end++;
        if (strcmp(end, "") != 0 && strcasecmp(end, "B") != 0 && strcasecmp(end, "iB") != 0)
            return QUIRE_INVALID;
    }
    if (errno || !(value >= 0) || value >= 18446744073709551615.0)
        return QUIRE_INVALID;
    *out = (uint64_t)value;
    return QUIRE_OK;
}

const char *cli_bytes_text(uint64_t n_bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)n_bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return out;
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
        real = strtod(value, &end);
        if (end == value || *end || errno || !isfinite(real))
            return quire_fail(err, QUIRE_INVALID, "--%.*s: \"%s\" is not a number", name_len, o->names, value);
    } else {
        whole = isdigit((unsigned char)value[0]) ? strtoull(value, &end, 10) : 0;
        uint64_t most = o->kind == CLI_U32 ? UINT32_MAX : UINT64_MAX;
        if (!end || *end || errno || whole > most)
            return quire_fail(err, QUIRE_INVALID, "--%.*s: \"%s\" is not a whole number", name_len, o->names, value);
        real = (double)whole;
    }
    if ((o->min != 0 || o->max != 0) && (real < o->min || real > o->max))
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

/* One option at argv[*i], its values included. */
static int parse_option(const struct cli_command *command, int argc, char **argv, int *i, struct quire_error *err)
{
    const char *arg = argv[*i] + (argv[*i][1] == '-' ? 2 : 1);
    size_t n = strcspn(arg, "=");
    bool negated;
    const struct cli_option *o = find(command, arg, n, &negated);
    if (!o)
        return unknown(command, arg, n, err);
    if (o->given)
        *o->given = true;
    if (o->kind == CLI_FLAG) {
        if (arg[n] == '=')
            return quire_fail(err, QUIRE_INVALID, "--%.*s takes no value", (int)n, arg);
        *(bool *)o->target = !negated;
        return QUIRE_OK;
    }
    if (arg[n] == '=')
        return set_option(o, arg + n + 1, err);
    if (*i + 1 >= argc)
        return quire_fail(err, QUIRE_INVALID, "--%.*s needs a value: %s", (int)n, arg, o->value);
    int status = set_option(o, argv[++*i], err);
    while (status == QUIRE_OK && o->kind == CLI_LIST && *i + 1 < argc && argv[*i + 1][0] != '-')
        status = set_option(o, argv[++*i], err);
    return status;
}

int cli_parse(const struct cli_command *command, int argc, char **argv, bool *help, struct quire_error *err)
{
    size_t n_positionals = 0;
    bool only_positionals = false;
    *help = false;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = true;
            return QUIRE_OK;
        }
    for (int i = 0; i < argc; i++) {
        if (!only_positionals && strcmp(argv[i], "--") == 0) {
            only_positionals = true;
        } else if (!only_positionals && argv[i][0] == '-' && argv[i][1]) {
            int status = parse_option(command, argc, argv, &i, err);
            if (status != QUIRE_OK)
                return status;
        } else if (n_positionals < 4 && command->positionals[n_positionals]) {
            *command->positionals[n_positionals++] = argv[i];
        } else {
            return quire_fail(err, QUIRE_INVALID, "\"%s\" is one argument too many; usage: %s", argv[i],
                              command->usage);
        }
    }
    return QUIRE_OK;
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
