#include "app/models/snapshot.h"

#include "app/models/name.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096
#define MAX_FILES 20000u
#define MAX_FOLDERS 2u /* above a file */

static void add(struct hub_names *names, const char *name)
{
    char **more = realloc(names->items, (names->n + 1) * sizeof *more);
    if (more)
        names->items = more;
    if (more && (names->items[names->n] = strdup(name)))
        names->n++;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct hub_names *names)
{
    if (names->n)
        qsort(names->items, names->n, sizeof *names->items, compare);
}

static void list_files(const char *dir, const char *below, unsigned depth, struct hub_names *names)
{
    char path[PATH_BYTES], name[HUB_FILE_NAME_BYTES];
    struct stat info;
    DIR *open = snprintf(path, sizeof path, "%s/%s", dir, below) < (int)sizeof path ? opendir(path) : NULL;
    for (struct dirent *entry; open && (entry = readdir(open)) && names->n < MAX_FILES;) {
        if (entry->d_name[0] == '.' ||
            (size_t)snprintf(name, sizeof name, "%s%s%s", below, *below ? "/" : "", entry->d_name) >= sizeof name ||
            !hub_file_name_ok(name) || snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path ||
            stat(path, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode) && depth < MAX_FOLDERS)
            list_files(dir, name, depth + 1, names);
        if (S_ISREG(info.st_mode))
            add(names, name);
    }
    if (open)
        closedir(open);
}

void hub_snapshot_files(const char *dir, struct hub_names *out)
{
    *out = (struct hub_names){NULL, 0};
    list_files(dir, "", 0, out);
    sort(out);
}

/* "models--ORG--NAME" or "models--NAME". */
static void add_model(struct hub_names *names, const char *directory)
{
    static const char first[] = "models--";
    char name[HUB_NAME_BYTES];
    struct hub_name parsed;
    if (strncmp(directory, first, sizeof first - 1) != 0)
        return;
    const char *org = directory + sizeof first - 1, *gap = strstr(org, "--");
    int n = gap ? snprintf(name, sizeof name, "%.*s/%s", (int)(gap - org), org, gap + 2)
                : snprintf(name, sizeof name, "%s", org);
    if (n < (int)sizeof name && hub_name_parse(name, &parsed, NULL) == QUIRE_OK)
        add(names, parsed.text);
}

void hub_cache_models(const char *root, struct hub_names *out)
{
    *out = (struct hub_names){NULL, 0};
    DIR *open = opendir(root);
    for (struct dirent *entry; open && (entry = readdir(open)) && out->n < MAX_FILES;)
        add_model(out, entry->d_name);
    if (open)
        closedir(open);
    sort(out);
}

void hub_names_free(struct hub_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->items[i]);
    free(names->items);
    *names = (struct hub_names){NULL, 0};
}
