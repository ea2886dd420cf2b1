#include "tools/hub/remove.h"

#include "app/models/quant.h"
#include "app/models/snapshot.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(const char *path, const char *what, struct quire_error *err)
{
    return quire_fail(err, QUIRE_IO, "%.350s: %s: %m", path, what);
}

/* Opens a walk that never follows a link. */
static FTS *walk(const char *path)
{
    char copy[HUB_PATH_BYTES];
    snprintf(copy, sizeof copy, "%s", path);
    char *const roots[] = {copy, NULL};
    return fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
}

/* ---- the plan ---- */

/* The name below blobs/ that a link points to. NULL if it points elsewhere. The caller frees it. */
static char *blob_of(const char *link)
{
    static const char folder[] = "/blobs/";
    char target[HUB_PATH_BYTES];
    const ssize_t n = readlink(link, target, sizeof target - 1);
    if (n <= 0)
        return NULL;
    target[n] = 0;
    char *name = strrchr(target, '/');
    const size_t n_folder = sizeof folder - 1;
    if (!name || !name[1] || name[1] == '.' || (size_t)(name + 1 - target) < n_folder ||
        strncmp(name + 1 - n_folder, folder, n_folder) != 0)
        return NULL;
    return strdup(name + 1);
}

static int add_file(struct hub_removal *r, const char *path, bool is_link, bool selected, struct quire_error *err)
{
    struct hub_removal_file *more = realloc(r->files, (r->n_files + 1) * sizeof *more);
    if (!more)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    r->files = more;
    struct hub_removal_file *file = &more[r->n_files];
    *file = (struct hub_removal_file){
        .path = strdup(path), .blob = is_link ? blob_of(path) : NULL, .selected = selected};
    if (!file->path)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    r->n_files++;
    r->n_selected += selected;
    return QUIRE_OK;
}

/* Reads the files of all revisions. first: of the selected quantization, or NULL for a whole revision. */
static int read_files(struct hub_removal *r, const char *first, struct quire_error *err)
{
    char snapshots[HUB_PATH_BYTES];
    int status = QUIRE_OK;
    if (snprintf(snapshots, sizeof snapshots, "%s/snapshots", r->repo) >= (int)sizeof snapshots)
        return quire_fail(err, QUIRE_INVALID, "a path in the Hugging Face cache is too long");
    const size_t n_commit = strlen(r->commit), n_root = strlen(snapshots);
    FTS *open = walk(snapshots);
    for (FTSENT *at; open && status == QUIRE_OK && (at = fts_read(open));) {
        const bool is_link = at->fts_info == FTS_SL || at->fts_info == FTS_SLNONE;
        r->n_revisions += at->fts_info == FTS_D && at->fts_level == 1;
        if (!is_link && at->fts_info != FTS_F)
            continue;
        const char *below = at->fts_path + n_root + 1;
        bool selected = r->is_whole || (strncmp(below, r->commit, n_commit) == 0 && below[n_commit] == '/');
        if (selected && first)
            selected = hub_quant_belongs(below + n_commit + 1, first);
        status = add_file(r, at->fts_path, is_link, selected, err);
    }
    if (open)
        fts_close(open);
    return status;
}

/* Whether a link that stays names the blob. */
static bool is_used(const struct hub_removal *r, const char *blob)
{
    for (size_t i = 0; i < r->n_files; i++)
        if (!r->files[i].selected && r->files[i].blob && strcmp(r->files[i].blob, blob) == 0)
            return true;
    return false;
}

/* A blob that another selected link named before is counted and removed once. */
static bool is_first_of(const struct hub_removal *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (r->files[k].selected && r->files[k].blob && strcmp(r->files[k].blob, r->files[i].blob) == 0)
            return false;
    return true;
}

/* Returns whether the blob of files[i] goes, with its path. */
static bool blob_goes(const struct hub_removal *r, size_t i, char path[HUB_PATH_BYTES])
{
    const struct hub_removal_file *f = &r->files[i];
    return f->selected && f->blob && is_first_of(r, i) && !is_used(r, f->blob) &&
           snprintf(path, HUB_PATH_BYTES, "%s/blobs/%s", r->repo, f->blob) < HUB_PATH_BYTES;
}

/* The bytes of a whole repository, with blobs that no link names, such as those of an interrupted download. */
static uint64_t bytes_below(const char *dir)
{
    uint64_t sum = 0;
    FTS *open = walk(dir);
    for (FTSENT *at; open && (at = fts_read(open));)
        sum += at->fts_info == FTS_F ? (uint64_t)at->fts_statp->st_size : 0;
    if (open)
        fts_close(open);
    return sum;
}

static void count_bytes(struct hub_removal *r)
{
    char path[HUB_PATH_BYTES];
    struct stat info;
    if (r->is_whole) {
        r->bytes = bytes_below(r->repo);
        return;
    }
    for (size_t i = 0; i < r->n_files; i++) {
        const struct hub_removal_file *f = &r->files[i];
        if (blob_goes(r, i, path) ? lstat(path, &info) == 0 : f->selected && !f->blob && lstat(f->path, &info) == 0)
            r->bytes += (uint64_t)info.st_size;
    }
}

/* The commit of the name's revision, and the first file of its quantization in first. */
static int select_part(const struct hub_name *name, struct hub_removal *r, char first[HUB_FILE_NAME_BYTES],
                       struct quire_error *err)
{
    char path[HUB_PATH_BYTES], typed[HUB_TYPED_BYTES];
    struct stat info;
    struct hub_names names;
    const char *chosen;
    first[0] = 0;
    int status = hub_cache_commit(name, r->commit, err);
    if (status != QUIRE_OK)
        return status;
    if (snprintf(path, sizeof path, "%s/snapshots/%s", r->repo, r->commit) >= (int)sizeof path ||
        lstat(path, &info) != 0)
        return quire_fail(err, QUIRE_NOT_FOUND, "the Hugging Face cache has no %s (quire list)",
                          hub_name_typed(name, typed));
    if (!name->quant[0])
        return QUIRE_OK;
    hub_snapshot_files(path, &names);
    status = hub_quant_choose(names.items, names.n, name->quant, &chosen, err);
    if (status == QUIRE_OK)
        snprintf(first, HUB_FILE_NAME_BYTES, "%s", chosen);
    hub_names_free(&names);
    return status;
}

int hub_removal_plan(const struct hub_name *name, bool has_revision, struct hub_removal *out, struct quire_error *err)
{
    char first[HUB_FILE_NAME_BYTES] = "";
    struct stat info;
    *out = (struct hub_removal){.is_whole = !has_revision && !name->quant[0]};
    int status = hub_cache_repo(name, out->repo, err);
    if (status != QUIRE_OK)
        return status;
    if (lstat(out->repo, &info) != 0)
        return quire_fail(err, QUIRE_NOT_FOUND, "the Hugging Face cache has no %s (quire list)", name->text);
    if (!S_ISDIR(info.st_mode))
        return quire_fail(err, QUIRE_INVALID, "%.300s: is not a directory; remove it by hand", out->repo);
    if (!out->is_whole)
        status = select_part(name, out, first, err);
    if (status == QUIRE_OK)
        status = read_files(out, first[0] ? first : NULL, err);
    if (status == QUIRE_OK)
        count_bytes(out);
    return status;
}

/* ---- the removal ---- */

static int remove_file(const char *path, struct quire_error *err)
{
    return unlink(path) == 0 || errno == ENOENT ? QUIRE_OK : failed(path, "cannot be removed", err);
}

/* Removes a directory with everything below it. Links are removed, not followed. */
static int remove_tree(const char *dir, struct quire_error *err)
{
    int status = QUIRE_OK;
    FTS *open = walk(dir);
    if (!open)
        return failed(dir, "cannot be read", err);
    for (FTSENT *at; status == QUIRE_OK && (at = fts_read(open));) {
        if (at->fts_info == FTS_D)
            continue;
        if (at->fts_info == FTS_DP)
            status = rmdir(at->fts_path) == 0 ? QUIRE_OK : failed(at->fts_path, "cannot be removed", err);
        else
            status = remove_file(at->fts_path, err);
    }
    fts_close(open);
    return status;
}

/* Removes the empty directories of a snapshot. Returns whether the snapshot itself is gone. */
static bool remove_empty(const char *dir)
{
    struct stat info;
    FTS *open = walk(dir);
    for (FTSENT *at; open && (at = fts_read(open));)
        if (at->fts_info == FTS_DP)
            rmdir(at->fts_path); /* fails, as it should, if the directory has files */
    if (open)
        fts_close(open);
    return lstat(dir, &info) != 0;
}

/* Removes the branches and tags that name the removed commit. */
static int remove_refs(const struct hub_removal *r, struct quire_error *err)
{
    char refs[HUB_PATH_BYTES], text[HUB_COMMIT_BYTES];
    int status = QUIRE_OK;
    if (snprintf(refs, sizeof refs, "%s/refs", r->repo) >= (int)sizeof refs)
        return QUIRE_OK;
    FTS *open = walk(refs);
    for (FTSENT *at; open && status == QUIRE_OK && (at = fts_read(open));) {
        FILE *file = at->fts_info == FTS_F ? fopen(at->fts_path, "re") : NULL;
        const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[n] = 0;
        if (file)
            fclose(file);
        if (file && strcmp(text, r->commit) == 0)
            status = remove_file(at->fts_path, err);
    }
    if (open)
        fts_close(open);
    return status;
}

int hub_removal_apply(const struct hub_removal *r, struct quire_error *err)
{
    char path[HUB_PATH_BYTES];
    int status = QUIRE_OK;
    if (r->is_whole)
        return remove_tree(r->repo, err);
    /* Links go first: an interrupted removal leaves no link without its blob. */
    for (size_t i = 0; i < r->n_files && status == QUIRE_OK; i++)
        if (r->files[i].selected)
            status = remove_file(r->files[i].path, err);
    for (size_t i = 0; i < r->n_files && status == QUIRE_OK; i++)
        if (blob_goes(r, i, path))
            status = remove_file(path, err);
    if (status == QUIRE_OK && snprintf(path, sizeof path, "%s/snapshots/%s", r->repo, r->commit) < (int)sizeof path &&
        remove_empty(path))
        status = remove_refs(r, err);
    return status;
}

void hub_removal_free(struct hub_removal *r)
{
    for (size_t i = 0; i < r->n_files; i++) {
        free(r->files[i].path);
        free(r->files[i].blob);
    }
    free(r->files);
    r->files = NULL;
    r->n_files = 0;
}
