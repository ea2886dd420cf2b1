/* Records the events of one client of a daemon, and of one of its streams, for tests that join client and daemon. */
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
    uint32_t cancel_at; /* cancels itself within on_token at this count; 0: never */
    bool close_at_token;
};

extern const struct engine_client_events heard_events; /* context: struct heard */
extern const struct completion_events stream_events;   /* context: struct stream */
extern const uint32_t heard_prompt[5];

/* The caller frees the tokens. */
void stream_open(struct stream *s, struct heard *h);
void our_hello(struct wire_hello *hello);
void submit_of(struct request_spec *submit); /* heard_prompt with at most 100 tokens */
void submit(struct heard *h, struct stream *s, const struct request_spec *what);

/* Conditions for rig_run_until(), for a struct heard and for a struct stream. */
bool is_ready_or_closed(void *heard);
bool is_over(void *stream);

#endif
