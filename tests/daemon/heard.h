/* What one client of a daemon hears, and one stream of it: for tests that join the two. */
#ifndef QUIRE_TESTS_DAEMON_HEARD_H
#define QUIRE_TESTS_DAEMON_HEARD_H

#include "server/link/engine_client.h"

struct heard {
    struct engine_client *client;
    bool ready, closed, drained, stats_came;
    char why[512];
    struct wire_hello hello;
    char model[64];
    struct wire_stats stats;
    unsigned calls_after_close;
};

#define MOST 20000
struct stream {
    struct heard *heard;
    uint64_t id;
    unsigned accepted, refused, lost, done, last;
    uint32_t n_tokens, n_prompt;
    struct wire_token *tokens;
    struct wire_token prompt[64];
    struct wire_done dones[8];
    struct wire_refuse refuse;
    char message[256], parameter[64];
    uint32_t cancel_at; /* cancels itself within on_token then; 0: never */
    bool close_at_token;
};

extern const struct engine_client_events heard_events; /* of a struct heard */
extern const struct completion_events stream_events;   /* of a struct stream */
extern const uint32_t heard_prompt[5];

/* Tokens are freed by the caller. */
void stream_open(struct stream *s, struct heard *h);
void our_hello(struct wire_hello *hello);
void submit_of(struct request_spec *submit); /* heard_prompt, and at most 100 tokens after it */
void submit(struct heard *h, struct stream *s, const struct request_spec *what);

/* For rig_run_until(): of a struct heard, and of a struct stream. */
bool is_ready_or_closed(void *heard);
bool is_over(void *stream);

#endif
