#include "app/models/scan.h"

#include "app/models/quant.h"
#include "app/models/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_ROWS 10000u

/* The revision of a repository while it is read. */
struct reading {
    struct hub_rows *rows;
    struct quire_error *err;
    const char *name, *repo, *commit;
    char dir[HUB_PATH_BYTES];
    char revision[HUB_REVISION_BYTES]; /* a branch or tag that names the commit, otherwise the commit */
    struct hub_names files;
};

/* The name in refs/ whose file holds the commit; "main" is preferred. */
static void find_ref(struct reading *r)
{
    char refs[HUB_PATH_BYTES], path[HUB_PATH_BYTES], text[HUB_COMMIT_BYTES];
    struct hub_names names;
    snprintf(r->revision, sizeof r->revision, "%s", r->commit);
    if (snprintf(refs, sizeof refs, "%s/refs", r->repo) >= (int)sizeof refs)
        return;
    hub_snapshot_files(refs, &names);
    for (size_t i = 0; i < names.n && strcmp(r->revision, "main") != 0; i++) {
        FILE *file = snprintf(path, sizeof path, "%s/%s", refs, names.items[i]) < (int)sizeof path ? fopen(path, "re")
                                                                                                   : NULL;
        size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[n] = 0;
        if (strcmp(text, r->commit) == 0 && strlen(names.items[i]) < sizeof r->revision)
            strcpy(r->revision, names.items[i]);
        if (file)
            fclose(file);
    }
    hub_names_free(&names);
}

static void count_file(const struct reading *r, const char *file, struct hub_row *row)
{
    char path[HUB_PATH_BYTES];
    struct stat info;
    if (snprintf(path, sizeof path, "%s/%s", r->dir, file) >= (int)sizeof path || stat(path, &info) != 0)
        return;
    row->bytes += (uint64_t)info.st_size;
    if (info.st_mtime > row->changed)
        row->changed = info.st_mtime;
}

static int add_row(struct reading *r, const struct hub_row *row)
{
    struct hub_name name = {.text = ""};
    struct hub_rows *rows = r->rows;
    struct hub_row *more = rows->n < MAX_ROWS ? realloc(rows->items, (rows->n + 1) * sizeof *more) : NULL;
    if (!more)
        return quire_fail(r->err, QUIRE_NO_MEMORY, "too many models in the Hugging Face cache");
    rows->items = more;
    struct hub_row *own = &more[rows->n++];
    *own = *row;
    snprintf(own->name, sizeof own->name, "%s", r->name);
    snprintf(own->commit, sizeof own->commit, "%s", r->commit);
    snprintf(own->revision, sizeof own->revision, "%s", r->revision);
    strcpy(name.text, own->name);
    strcpy(name.quant, own->quant);
    strcpy(name.revision, own->revision);
    hub_name_typed(&name, own->typed);
    return QUIRE_OK;
}

/* The row of one GGUF file with its splits. */
static int add_gguf(struct reading *r, const char *first)
{
    struct hub_row row = {.is_gguf = true};
    struct quire_error missing;
    char path[HUB_PATH_BYTES];
    if (!hub_quant_label(r->files.items, r->files.n, first, row.quant, sizeof row.quant))
        row.quant[0] = 0;
    for (size_t i = 0; i < r->files.n; i++)
        if (hub_quant_belongs(r->files.items[i], first))
            count_file(r, r->files.items[i], &row);
    if (hub_snapshot_quant(r->dir, row.quant, path, &missing) != QUIRE_OK)
        snprintf(row.missing, sizeof row.missing, "%.199s", missing.text);
    return add_row(r, &row);
}

static int add_revision(struct reading *r)
{
    struct hub_row row = {.is_gguf = false};
    struct quire_error missing;
    bool has_gguf = false;
    int status = QUIRE_OK;
    find_ref(r);
    for (size_t i = 0; i < r->files.n && status == QUIRE_OK; i++) {
        if (!hub_quant_is_first(r->files.items[i]))
            continue;
        has_gguf = true;
        status = add_gguf(r, r->files.items[i]);
    }
    const bool is_complete = hub_snapshot_check(r->dir, false, &missing) == QUIRE_OK;
    if (status != QUIRE_OK || (has_gguf && !is_complete))
        return status;
    for (size_t i = 0; i < r->files.n; i++)
        if (!hub_quant_of_file(r->files.items[i], row.quant, sizeof row.quant))
            count_file(r, r->files.items[i], &row);
    row.quant[0] = 0;
    if (!is_complete)
        snprintf(row.missing, sizeof row.missing, "%.199s", missing.text);
    return add_row(r, &row);
}

static int add_model(struct hub_rows *rows, const char *name, struct quire_error *err)
{
    struct hub_name parsed;
    struct reading r = {.rows = rows, .err = err, .name = name};
    char repo[HUB_PATH_BYTES], snapshots[HUB_PATH_BYTES];
    int status = hub_name_parse(name, &parsed, NULL);
    if (status != QUIRE_OK || hub_cache_repo(&parsed, repo, NULL) != QUIRE_OK ||
        snprintf(snapshots, sizeof snapshots, "%s/snapshots", repo) >= (int)sizeof snapshots)
        return QUIRE_OK;
    r.repo = repo;
    DIR *open = opendir(snapshots);
    for (struct dirent *entry; open && status == QUIRE_OK && (entry = readdir(open));) {
        r.commit = entry->d_name;
        if (!hub_is_commit(r.commit) ||
            snprintf(r.dir, sizeof r.dir, "%s/%s", snapshots, r.commit) >= (int)sizeof r.dir)
            continue;
        hub_snapshot_files(r.dir, &r.files);
        status = add_revision(&r);
        hub_names_free(&r.files);
    }
    if (open)
        closedir(open);
    return status;
}

static int compare(const void *a, const void *b)
{
    const struct hub_row *x = a, *y = b;
    int by_name = strcmp(x->name, y->name);
    int by_revision = by_name ? by_name : strcmp(x->revision, y->revision);
    return by_revision ? by_revision : strcmp(x->quant, y->quant);
}

/* A cache that does not exist is empty; one that cannot be read is an error. */
static int check_root(const char *root, struct quire_error *err)
{
    DIR *open = opendir(root);
    if (!open)
        return errno == ENOENT ? QUIRE_OK
                               : quire_fail(err, QUIRE_IO, "%.300s: cannot be read: %s", root, strerror(errno));
    closedir(open);
    return QUIRE_OK;
}

int hub_scan(struct hub_rows *out, struct quire_error *err)
{
    char root[HUB_PATH_BYTES];
    struct hub_names names;
    *out = (struct hub_rows){NULL, 0};
    int status = hub_cache_root(root, err);
    if (status == QUIRE_OK)
        status = check_root(root, err);
    if (status != QUIRE_OK)
        return status;
    hub_cache_models(root, &names);
    for (size_t i = 0; i < names.n && status == QUIRE_OK; i++)
        status = add_model(out, names.items[i], err);
    hub_names_free(&names);
    if (status != QUIRE_OK)
        hub_rows_free(out);
    else if (out->n)
        qsort(out->items, out->n, sizeof *out->items, compare);
    return status;
}

void hub_rows_free(struct hub_rows *rows)
{
    free(rows->items);
    *rows = (struct hub_rows){NULL, 0};
}
