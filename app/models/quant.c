#include "app/models/quant.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define END ".gguf"
#define SPLIT_BYTES 15u /* of "-00001-of-00003" */

static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

/* Length of a name without ".gguf"; 0: another name. */
static size_t stem(const char *file)
{
    size_t n = strlen(file);
    return n > strlen(END) && strcasecmp(file + n - strlen(END), END) == 0 ? n - strlen(END) : 0;
}

/* Returns whether a stem ends in "-00001-of-00003". */
static bool split_of(const char *file, size_t n, unsigned *number, unsigned *count)
{
    int used = 0;
    if (n <= SPLIT_BYTES)
        return false;
    return sscanf(file + n - SPLIT_BYTES, "-%5u-of-%5u%n", number, count, &used) == 2 && used == (int)SPLIT_BYTES &&
           *number >= 1 && *number <= *count;
}

/* The stem without that suffix. */
static size_t whole_stem(const char *file)
{
    unsigned number, count;
    size_t n = stem(file);
    return split_of(file, n, &number, &count) ? n - SPLIT_BYTES : n;
}

static bool is_first(const char *file)
{
    unsigned number, count;
    return !split_of(file, stem(file), &number, &count) || number == 1;
}

/* mmproj-*.gguf is the vision part of a model. */
static bool is_model(const char *file)
{
    return stem(file) > 0 && strncasecmp(base_name(file), "mmproj", 6) != 0;
}

static bool matches(const char *file, const char *quant)
{
    const size_t n = whole_stem(file), n_quant = strlen(quant);
    const size_t begin = (size_t)(base_name(file) - file);
    if (!is_model(file) || n < begin + n_quant || strncasecmp(file + n - n_quant, quant, n_quant) != 0)
        return false;
    return n == begin + n_quant || strchr("-._", file[n - n_quant - 1]);
}

int hub_quant_choose(char *const *files, size_t n, const char *quant, const char **first, struct quire_error *err)
{
    char all[340] = "", matched[340] = "";
    size_t n_matched = 0, n_all = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_model(files[i]) || !is_first(files[i]))
            continue;
        size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%.100s", n_all++ ? ", " : "", files[i]);
        if (!matches(files[i], quant))
            continue;
        *first = files[i];
        at = strlen(matched);
        snprintf(matched + at, sizeof matched - at, "%s%.100s", n_matched++ ? ", " : "", files[i]);
    }
    if (n_matched == 1)
        return QUIRE_OK;
    if (n_matched > 1)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s matches more than one file: %s", quant, matched);
    return quire_fail(err, QUIRE_NOT_FOUND,
                      n_all ? "no GGUF file has the quantization %s; available: %s" : "no GGUF file is %s%s", quant,
                      all);
}

int hub_quant_only(char *const *files, size_t n, const char **first, struct quire_error *err)
{
    char all[340] = "", label[33];
    size_t n_all = 0;
    for (size_t i = 0; i < n; i++) {
        if (!hub_quant_is_first(files[i]))
            continue;
        const size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s", n_all++ ? ", " : "",
                 hub_quant_label(files, n, files[i], label, sizeof label) ? label : files[i]);
        *first = files[i];
    }
    if (n_all == 1)
        return QUIRE_OK;
    if (n_all > 1)
        return quire_fail(err, QUIRE_INVALID, "several GGUF files; write one of these after a colon: %s", all);
    return quire_fail(err, QUIRE_NOT_FOUND, "no GGUF file");
}

/* Begin of the part of a stem that begins before `at`, after one of "-." */
static size_t part_before(const char *file, size_t at)
{
    const size_t begin = (size_t)(base_name(file) - file);
    while (at > begin && !strchr("-.", file[at - 1]))
        at--;
    return at;
}

bool hub_quant_of_file(const char *file, char *out, size_t n_out)
{
    out[0] = 0;
    if (!is_model(file))
        return false;
    const size_t n = whole_stem(file), from = part_before(file, n);
    if (n - from >= n_out || n == from)
        return false;
    snprintf(out, n_out, "%.*s", (int)(n - from), file + from);
    return true;
}

bool hub_quant_label(char *const *files, size_t n_files, const char *first, char *out, size_t n_out)
{
    const size_t n = whole_stem(first), begin = (size_t)(base_name(first) - first);
    for (size_t from = part_before(first, n);; from = part_before(first, from - 1)) {
        const char *chosen;
        if (n - from >= n_out)
            return false;
        snprintf(out, n_out, "%.*s", (int)(n - from), first + from);
        if (hub_quant_choose(files, n_files, out, &chosen, NULL) == QUIRE_OK)
            return strcmp(chosen, first) == 0;
        if (from <= begin)
            return false;
    }
}

bool hub_quant_is_first(const char *file)
{
    return is_model(file) && is_first(file);
}

bool hub_quant_belongs(const char *file, const char *first)
{
    const size_t n = whole_stem(first);
    return stem(file) > 0 && whole_stem(file) == n && strncmp(file, first, n) == 0 && strlen(file) == strlen(first);
}

unsigned hub_quant_n_splits(const char *first)
{
    unsigned number, count;
    return split_of(first, stem(first), &number, &count) ? count : 1;
}

bool hub_quant_split(const char *first, unsigned i, char *out, size_t n_out)
{
    const unsigned n = hub_quant_n_splits(first);
    const size_t n_stem = stem(first);
    if (n == 1)
        return (size_t)snprintf(out, n_out, "%s", first) < n_out;
    return (size_t)snprintf(out, n_out, "%.*s-%05u-of-%05u%s", (int)(n_stem - SPLIT_BYTES), first, i + 1, n,
                            first + n_stem) < n_out;
}
