#include "engine/checkpoint/checkpoint_table.h"

#include <stdlib.h>
#include <string.h>

struct checkpoint_entry *checkpoint_table_append(struct checkpoint_table *table, const char *name)
{
    if (table->n == table->capacity) {
        size_t more = table->capacity ? table->capacity * 2 : 64;
        struct checkpoint_entry *grown = realloc(table->entries, more * sizeof *grown);
        if (!grown)
            return NULL;
        table->entries = grown;
        table->capacity = more;
    }
    struct checkpoint_entry *entry = &table->entries[table->n];
    memset(entry, 0, sizeof *entry);
    entry->name = strdup(name);
    if (!entry->name)
        return NULL;
    table->n++;
    return entry;
}

void checkpoint_table_free(struct checkpoint_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        free(table->entries[i].name);
    free(table->entries);
    memset(table, 0, sizeof *table);
}
