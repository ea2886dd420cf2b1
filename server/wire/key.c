#include "server/wire/key.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIN_BYTES 16
#define MAX_BYTES 4096
#define LABEL_BYTES 16

static int read_all(int fd, const char *path, char *bytes, size_t n_max, size_t *n, struct quire_error *err)
{
    *n = 0;
    while (*n < n_max) {
        ssize_t got = read(fd, bytes + *n, n_max - *n);
        if (got == 0)
            break;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return quire_fail(err, QUIRE_IO, "key file %s: cannot be read: %m", path);
        *n += (size_t)got;
    }
    return QUIRE_OK;
}

static int read_key(int fd, const char *path, struct key256 *key, struct quire_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return quire_fail(err, QUIRE_IO, "key file %s: cannot be read: %m", path);
    if (!S_ISREG(st.st_mode))
        return quire_fail(err, QUIRE_INVALID, "key file %s: is not a regular file", path);
    if (st.st_mode & S_IRWXO)
        return quire_fail(err, QUIRE_INVALID, "key file %s: others may read it: run chmod 600 on it", path);
    char bytes[MAX_BYTES + 1];
    size_t n;
    int status = read_all(fd, path, bytes, sizeof bytes, &n, err);
    if (status)
        return status;
    if (n > MAX_BYTES)
        return quire_fail(err, QUIRE_INVALID, "key file %s: longer than %d bytes", path, MAX_BYTES);
    while (n > 0 && memchr(" \t\r\n", bytes[n - 1], 4))
        n--;
    if (n < MIN_BYTES)
        return quire_fail(err, QUIRE_INVALID, "key file %s: needs at least %d bytes, has %zu", path, MIN_BYTES, n);
    *key = quire_keyed_hash(NULL, bytes, n);
    explicit_bzero(bytes, sizeof bytes);
    return QUIRE_OK;
}

int wire_key_read(const char *path, struct key256 *key, struct quire_error *err)
{
    /* O_NONBLOCK opens a FIFO at once, so it cannot stall the start; the type check then rejects it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return quire_fail(err, errno == ENOENT ? QUIRE_NOT_FOUND : QUIRE_IO, "key file %s: cannot be opened: %m", path);
    int status = read_key(fd, path, key, err);
    close(fd);
    return status;
}

struct key256 wire_key_proof(const struct key256 *key, enum wire_key_role role,
                             const uint8_t engine_nonce[WIRE_NONCE_BYTES], const uint8_t front_nonce[WIRE_NONCE_BYTES])
{
    /* The label prevents a replay of one side's proof as the other's. */
    uint8_t message[LABEL_BYTES + 2 * WIRE_NONCE_BYTES];
    const char *label = role == WIRE_KEY_FRONT ? "quire front  v1\n" : "quire engine v1\n";
    memcpy(message, label, LABEL_BYTES);
    memcpy(message + LABEL_BYTES, engine_nonce, WIRE_NONCE_BYTES);
    memcpy(message + LABEL_BYTES + WIRE_NONCE_BYTES, front_nonce, WIRE_NONCE_BYTES);
    return quire_keyed_hash(key, message, sizeof message);
}
