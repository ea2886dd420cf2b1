#include "server/gateway/file/secret.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *keep(const char *text, size_t n, struct arena *arena, const char **out)
{
    if (n == 0)
        return "is empty";
    if (n > SECRET_MAX_BYTES)
        return "has more than 4096 bytes";
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return "has a character that no key has: a space, a line break or a character beyond ASCII";
    *out = arena_text(arena, text, n);
    return *out ? NULL : "does not fit into memory";
}

const char *secret_from_environment(const char *name, struct arena *arena, const char **out)
{
    const char *text = getenv(name);
    *out = NULL;
    return text ? keep(text, strlen(text), arena, out) : "is not set in the environment";
}

static const char *check_file(int file)
{
    struct stat st;
    if (fstat(file, &st) != 0 || !S_ISREG(st.st_mode))
        return "is not a regular file";
    if (st.st_mode & 077)
        return "can be read or changed by other users; run chmod 600 on it";
    return st.st_uid == geteuid() || st.st_uid == 0 ? NULL : "belongs to another user";
}

static const char *read_key(int file, struct arena *arena, const char **out)
{
    char text[SECRET_MAX_BYTES + 2];
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n < sizeof text; n += got > 0 ? (size_t)got : 0)
        if ((got = read(file, text + n, sizeof text - n)) < 0)
            return "cannot be read";
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    const char *why = keep(text, n, arena, out);
    explicit_bzero(text, sizeof text);
    return why;
}

const char *secret_from_file(const char *path, struct arena *arena, const char **out)
{
    /* O_NONBLOCK: a pipe must not stop the reader before it is refused. */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return "cannot be opened";
    const char *why = check_file(file);
    if (!why && out) {
        *out = NULL;
        why = read_key(file, arena, out);
    }
    close(file);
    return why;
}
