#include "tools/hub/store.h"

#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SPARE_BYTES (64ull << 20) /* never fill a disk completely */

static int failed(const char *path, const char *what, struct quire_error *err)
{
    return quire_fail(err, QUIRE_IO, "%.350s: %s: %m", path, what);
}

/* Creates the directories above path's last '/'. */
static int make_parents(char *path, struct quire_error *err)
{
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        int status = mkdir(path, 0777) == 0 || errno == EEXIST ? QUIRE_OK : failed(path, "cannot be created", err);
        *at = '/';
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

int hub_store_lock(const char *repo, void (*on_wait)(void *context), void *context, int *fd, struct quire_error *err)
{
    char *path, *blobs;
    const char *slash = strrchr(repo, '/');
    *fd = -1;
    if (asprintf(&blobs, "%s/blobs/", repo) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = make_parents(blobs, err);
    free(blobs);
    if (status != QUIRE_OK)
        return status;
    if (asprintf(&path, "%.*s/.locks/%s/quire.lock", (int)(slash - repo), repo, slash + 1) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if ((status = make_parents(path, err)) == QUIRE_OK && (*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        status = failed(path, "cannot be created", err);
    if (status == QUIRE_OK && flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            on_wait(context);
        while (flock(*fd, LOCK_EX) != 0 && status == QUIRE_OK)
            if (errno != EINTR)
                status = failed(path, "cannot be locked", err);
    }
    free(path);
    return status;
}

int hub_store_check_space(const char *repo, uint64_t n_bytes, struct quire_error *err)
{
    struct statvfs fs;
    if (n_bytes == 0 || statvfs(repo, &fs) != 0)
        return QUIRE_OK;
    uint64_t n_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (n_bytes + SPARE_BYTES <= n_free)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_EXHAUSTED,
                      "%s are left to download, but %.250s has only %s free: free space, or move the cache with "
                      "HF_HOME",
                      quire_size(n_bytes).text, repo, quire_size(n_free).text);
}

/* Renames `made` to path. */
static int rename_made(const char *made, const char *path, struct quire_error *err)
{
    if (rename(made, path) == 0)
        return QUIRE_OK;
    int status = failed(path, "cannot be created", err);
    unlink(made);
    return status;
}

int hub_store_link(const char *repo, const char *commit, const char *file, const char *etag, struct quire_error *err)
{
    char up[64] = "../..", *path = NULL, *made = NULL, *target = NULL;
    for (const char *at = file; (at = strchr(at, '/')) && strlen(up) + 4 < sizeof up; at++)
        strcat(up, "/..");
    int status = asprintf(&path, "%s/snapshots/%s/%s", repo, commit, file) >= 0 &&
                         asprintf(&made, "%s.quire.new", path) >= 0 && asprintf(&target, "%s/blobs/%s", up, etag) >= 0
                     ? make_parents(path, err)
                     : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK) {
        unlink(made); /* of a killed pull */
        status = symlink(target, made) == 0 ? rename_made(made, path, err) : failed(made, "cannot be created", err);
    }
    free(path);
    free(made);
    free(target);
    return status;
}

int hub_store_ref(const char *repo, const char *revision, const char *commit, struct quire_error *err)
{
    char *path = NULL, *made = NULL;
    if (strcmp(revision, commit) == 0)
        return QUIRE_OK;
    int status = asprintf(&path, "%s/refs/%s", repo, revision) >= 0 && asprintf(&made, "%s.quire.new", path) >= 0
                     ? make_parents(path, err)
                     : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    FILE *file = status == QUIRE_OK ? fopen(made, "we") : NULL;
    if (status == QUIRE_OK && !file)
        status = failed(made, "cannot be created", err);
    if (file) {
        bool wrote = fputs(commit, file) >= 0;
        if (fclose(file) == 0 && wrote) {
            status = rename_made(made, path, err);
        } else {
            status = failed(made, "cannot be written", err);
            unlink(made); /* programs that list the cache treat every file here as a revision */
        }
    }
    free(path);
    free(made);
    return status;
}
