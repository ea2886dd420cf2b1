#include "tools/cache/stats_table.h"

#include "base/size.h"

#include <stdio.h>
#include <string.h>

#define CELL_BYTES 40

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* A value as text: bytes and shares with their units. */
static void write_cell(const char *name, const json_t *value, char out[CELL_BYTES])
{
    if (json_is_integer(value) && (strcmp(name, "bytes") == 0 || ends_with(name, "_bytes")))
        snprintf(out, CELL_BYTES, "%s", quire_size((uint64_t)json_integer_value(value)).text);
    else if (json_is_integer(value) && !ends_with(name, "_rate"))
        snprintf(out, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_number(value) && ends_with(name, "_rate"))
        snprintf(out, CELL_BYTES, "%.1f %%", 100 * json_number_value(value));
    else if (json_is_number(value))
        snprintf(out, CELL_BYTES, "%.4g", json_number_value(value));
    else if (json_is_boolean(value))
        snprintf(out, CELL_BYTES, "%s", json_is_true(value) ? "yes" : "no");
    else
        snprintf(out, CELL_BYTES, "%.39s", json_is_string(value) ? json_string_value(value) : "");
}

/* "expired_entries" as "expired entries". */
static void write_name(const char *name, char out[CELL_BYTES])
{
    snprintf(out, CELL_BYTES, "%.39s", name);
    for (char *c = out; *c; c++)
        if (*c == '_')
            *c = ' ';
}

static void print_row(const char *name, const json_t *value)
{
    char left[CELL_BYTES], cell[CELL_BYTES];
    write_name(name, left);
    write_cell(name, value, cell);
    printf("  %-24s %14s\n", left, cell);
}

/* Columns are the members of `layers`; rows are the counters of the first that has them. */
static void print_layers(json_t *layers)
{
    const char *layer, *name, *other;
    json_t *counters, *value, *theirs;
    json_t *seen = json_object();
    printf("\n  %-24s", "layers");
    json_object_foreach(layers, layer, counters) printf(" %14s", layer);
    putchar('\n');
    json_object_foreach(layers, layer, counters)
    {
        json_object_foreach(counters, name, value)
        {
            char left[CELL_BYTES], cell[CELL_BYTES];
            if (!json_is_object(counters) || json_object_get(seen, name) || json_is_object(value))
                continue;
            json_object_set_new(seen, name, json_true());
            write_name(name, left);
            printf("  %-24s", left);
            json_object_foreach(layers, other, theirs)
            {
                write_cell(name, json_object_get(theirs, name), cell);
                printf(" %14s", cell);
            }
            putchar('\n');
        }
    }
    json_decref(seen);
}

/* One row for each object of a list, with the members of the first as columns. */
static void print_list(const char *name, const json_t *list)
{
    const char *column;
    json_t *row, *value;
    size_t i;
    char cell[CELL_BYTES];
    printf("\n  %s\n", name);
    json_object_foreach(json_array_get(list, 0), column, value)
    {
        write_name(column, cell);
        printf("  %16s", cell);
    }
    putchar('\n');
    json_array_foreach((json_t *)(uintptr_t)list, i, row)
    {
        json_object_foreach(row, column, value)
        {
            write_cell(column, value, cell);
            printf("  %16s", cell);
        }
        putchar('\n');
    }
}

/* The members of an object under its name; inner objects and lists follow its plain members. */
static void print_object(const char *name, const json_t *object)
{
    const char *part;
    json_t *inner;
    printf("\n  %s\n", name);
    json_object_foreach((json_t *)(uintptr_t)object, part, inner) if (!json_is_object(inner) && !json_is_array(inner))
        print_row(part, inner);
    json_object_foreach((json_t *)(uintptr_t)object, part, inner)
    {
        char title[2 * CELL_BYTES];
        snprintf(title, sizeof title, "%.30s: %.40s", name, part);
        if (json_is_object(inner))
            print_object(title, inner);
        else if (json_is_array(inner))
            print_list(title, inner);
    }
}

void stats_table_print(const json_t *stats)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)stats, name, value)
    {
        if (strcmp(name, "object") == 0)
            continue;
        if (strcmp(name, "layers") == 0) {
            print_layers(value);
        } else if (json_is_object(value)) {
            print_object(name, value);
        } else {
            print_row(name, value);
        }
    }
}
