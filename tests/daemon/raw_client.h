/* A client that sends and reads hand-written frames, including wrong ones. Blocking, with a time limit. */
#ifndef QUIRE_TESTS_DAEMON_RAW_CLIENT_H
#define QUIRE_TESTS_DAEMON_RAW_CLIENT_H

#include "server/wire/frame.h"
#include "server/wire/frame_reader.h"

#define RAW_PATIENCE_MS 60000

struct raw_client {
    int fd;
    struct frame_reader in;
    struct buffer out; /* encode into it, then raw_send() */
    uint64_t n_read;        /* bytes of whole frames so far */
};

void raw_open(struct raw_client *raw, const char *unix_path);
void raw_close(struct raw_client *raw);
void raw_send(struct raw_client *raw); /* sends everything in out; a closed peer is not a failure */
void raw_send_bytes(struct raw_client *raw, const void *bytes, size_t n);

/* Returns 1 for a frame, 0 if none came within ms, -1 at the end of the stream. */
int raw_next(struct raw_client *raw, int ms, struct wire_header *header, const uint8_t **body);
/* The next frame must be of that type. */
void raw_expect(struct raw_client *raw, uint16_t type, struct wire_header *header, const uint8_t **body);
/* Expects ERROR with that status and text, then the end; skips earlier frames. */
void raw_expect_error(struct raw_client *raw, uint32_t status, const char *says);

/* Connects and shakes hands with the identities of rig_default_options(). */
void raw_hello(struct raw_client *raw, const char *unix_path, uint64_t credit);
/* Likewise; again if the daemon closed the connection because this process did not run in the time for HELLO. */
void raw_hello_in_time(struct raw_client *raw, const char *unix_path, uint64_t credit);
void raw_put_hello(struct raw_client *raw, uint64_t credit);
void raw_put_submit(struct raw_client *raw, uint64_t request, const uint32_t *prompt, uint32_t n_prompt,
                    uint32_t max_tokens, uint32_t n);

/* Reads until DONE with `last` of that request. Returns its number of tokens. Fails on frames of other requests. */
uint32_t raw_read_stream(struct raw_client *raw, uint64_t request, uint32_t *finish);

#endif
