#include "app/serving/server_list.h"

#include "base/encoding/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 512
#define MAX_BYTES 4096
#define MAX_SERVERS 1000

struct server_entry {
    char path[PATH_BYTES];
};

/* ---- the directory ---- */

/* Only a directory of this user that no one else may write is used: /tmp belongs to everybody. */
static int open_directory(bool create, char path[PATH_BYTES], struct quire_error *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat info;
    int n = runtime && *runtime == '/' ? snprintf(path, PATH_BYTES, "%s/quire", runtime)
                                       : snprintf(path, PATH_BYTES, "/tmp/quire-%u", (unsigned)geteuid());
    if (n >= PATH_BYTES - 32)
        return quire_fail(err, QUIRE_INVALID, "XDG_RUNTIME_DIR is too long");
    if (create)
        mkdir(path, 0700);
    if (lstat(path, &info) != 0)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: %m", path);
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022))
        return quire_fail(err, QUIRE_INVALID, "%s: must be a directory that only you can write", path);
    return QUIRE_OK;
}

/* ---- processes ---- */

/* The start of a process, in clock ticks since the boot. 0: it does not run. A later process with the same number has
 * another start. */
static unsigned long long start_of(pid_t pid)
{
    char path[64], text[1024];
    unsigned long long ticks = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    /* The name in parentheses may have spaces. The start is the 22nd field, the 20th after it. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at)
        ticks = strtoull(at, NULL, 10);
    return ticks;
}

/* Numbers of processes mean nothing in another namespace, such as a container's that shares /tmp. */
static void process_space(char out[64])
{
    ssize_t n = readlink("/proc/self/ns/pid", out, 63);
    out[n > 0 ? n : 0] = 0;
}

/* ---- writing ---- */

static bool write_file(const char *path, const json_t *content)
{
    char made[PATH_BYTES + 8];
    snprintf(made, sizeof made, "%s.new", path);
    const int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool written = json_dumpfd(content, fd, JSON_COMPACT) == 0;
    written = close(fd) == 0 && written && rename(made, path) == 0;
    if (!written)
        unlink(made);
    return written;
}

struct server_entry *server_list_announce(const char *kind, const char *model, const char *address)
{
    char directory[PATH_BYTES], space[64];
    const pid_t pid = getpid();
    process_space(space);
    if (open_directory(true, directory, NULL) != QUIRE_OK)
        return NULL;
    struct server_entry *r = calloc(1, sizeof *r);
    json_t *content = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s}", "kind", kind, "model", model, "address", address,
                                "pid", (json_int_t)pid, "started", (json_int_t)start_of(pid), "since",
                                (json_int_t)time(NULL), "space", space);
    bool done = r && content && snprintf(r->path, sizeof r->path, "%s/%d.json", directory, (int)pid) < PATH_BYTES &&
                write_file(r->path, content);
    json_decref(content);
    if (done)
        return r;
    free(r);
    return NULL;
}

void server_list_withdraw(struct server_entry *r)
{
    if (r)
        unlink(r->path);
    free(r);
}

/* ---- reading ---- */

static bool take_text(const json_t *content, const char *name, char *out, size_t n_out)
{
    const char *text = json_string_value(json_object_get(content, name));
    for (const char *c = text; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) /* no control bytes on a terminal */
            return false;
    return text && (size_t)snprintf(out, n_out, "%s", text) < n_out;
}

static json_t *read_file(const char *path)
{
    char text[MAX_BYTES];
    struct stat info;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    const bool is_own = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
    const ssize_t n = is_own ? read(fd, text, sizeof text) : -1;
    close(fd);
    json_t *content = NULL;
    if (n <= 0 || n == MAX_BYTES || quire_json_parse(text, (size_t)n, 4, "file", &content, NULL) != QUIRE_OK)
        return NULL;
    return content;
}

/* Returns whether the file is that of a running process. Removes the file of one that ended. */
static bool read_server(const char *path, struct listed_server *out)
{
    char space[64], own_space[64];
    json_t *content = read_file(path);
    if (!content)
        return false;
    *out = (struct listed_server){.pid = (pid_t)json_integer_value(json_object_get(content, "pid")),
                                  .since = (time_t)json_integer_value(json_object_get(content, "since"))};
    const json_int_t started = json_integer_value(json_object_get(content, "started"));
    process_space(own_space);
    const bool is_here = take_text(content, "space", space, sizeof space) && strcmp(space, own_space) == 0;
    bool runs = is_here && out->pid > 0 && started > 0 && start_of(out->pid) == (unsigned long long)started;
    if (is_here && !runs)
        unlink(path);
    runs = runs && take_text(content, "kind", out->kind, sizeof out->kind) &&
           take_text(content, "model", out->model, sizeof out->model) &&
           take_text(content, "address", out->address, sizeof out->address);
    json_decref(content);
    return runs;
}

static int by_pid(const void *a, const void *b)
{
    const struct listed_server *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

int server_list_read(struct server_list *out, struct quire_error *err)
{
    char directory[PATH_BYTES], path[PATH_BYTES + 300];
    *out = (struct server_list){NULL, 0};
    int status = open_directory(false, directory, err);
    if (status == QUIRE_NOT_FOUND)
        return QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    out->items = calloc(MAX_SERVERS, sizeof *out->items);
    DIR *open = out->items ? opendir(directory) : NULL;
    for (struct dirent *entry; open && out->n < MAX_SERVERS && (entry = readdir(open));) {
        const size_t n = strlen(entry->d_name), n_end = strlen(".json");
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (n > n_end && strcmp(entry->d_name + n - n_end, ".json") == 0 && read_server(path, &out->items[out->n]))
            out->n++;
    }
    if (open)
        closedir(open);
    if (!out->items)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    qsort(out->items, out->n, sizeof *out->items, by_pid);
    return QUIRE_OK;
}

void server_list_free(struct server_list *list)
{
    free(list->items);
    *list = (struct server_list){NULL, 0};
}
