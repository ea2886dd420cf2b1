/* What the store keeps: files and batches. Plain values; owns nothing but the texts of a batch. */
#ifndef QUIRE_BULK_RECORDS_H
#define QUIRE_BULK_RECORDS_H

#include "server/bulk/run/line.h"
#include "server/bulk/run/results.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BULK_ID_BYTES 48 /* "msgbatch_", 32 hexadecimal digits, NUL */
#define BULK_TENANT_BYTES 65
#define BULK_FILENAME_BYTES 256

/* The ids' prefixes. */
#define BULK_FILE_ID "file-"
#define BULK_BATCH_ID "batch_"
#define BULK_MESSAGES_ID "msgbatch_"

enum bulk_purpose {
    BULK_INPUT,    /* "batch" */
    BULK_OUTPUT,   /* "batch_output" */
    BULK_MESSAGES, /* the requests or the results of a batch of Anthropic's API: not a file of /v1/files */
};

struct bulk_file {
    char id[BULK_ID_BYTES], tenant[BULK_TENANT_BYTES];
    char filename[BULK_FILENAME_BYTES]; /* as the client wrote it; only ever shown */
    enum bulk_purpose purpose;
    uint64_t n_bytes;
    int64_t created, expires; /* seconds since 1970; 0: never */
};

enum bulk_state {
    BULK_VALIDATING,
    BULK_IN_PROGRESS,
    BULK_FINALIZING, /* the output files are being written */
    BULK_COMPLETED,
    BULK_FAILED, /* the input cannot be run at all */
    BULK_CANCELLING,
    BULK_STOPPED,   /* "cancelled" */
    BULK_TIMED_OUT, /* "expired" */
    BULK_N_STATES,
};
extern const char *const bulk_state_names[BULK_N_STATES];

struct bulk_batch {
    char id[BULK_ID_BYTES], tenant[BULK_TENANT_BYTES];
    char account[BULK_ID_BYTES]; /* the id of the gateway's key that pays; "": no gateway */
    char input[BULK_ID_BYTES], output[BULK_ID_BYTES], errors[BULK_ID_BYTES]; /* files; "": none */
    char url[32];
    enum bulk_dialect dialect;
    enum bulk_state state;
    enum bulk_state end; /* once it is finalizing: the state that follows */
    uint32_t window_s;   /* from its creation to its expiry */
    uint32_t output_ttl_s; /* 0: its output does not expire */
    int64_t
        at[BULK_N_STATES]; /* when it entered a state, in seconds since 1970; 0: never. [BULK_VALIDATING]: creation */
    struct bulk_counts counts;
    char *metadata; /* a JSON object or NULL. malloc'd, like why */
    char *why;      /* of BULK_FAILED: the message */
};

void bulk_batch_free(struct bulk_batch *b); /* only what it holds */
/* QUIRE_NO_MEMORY leaves an empty batch. */
int bulk_batch_copy(struct bulk_batch *to, const struct bulk_batch *from);
/* Whether it has ended. */
bool bulk_state_is_last(enum bulk_state state);
/* The second in which it expires. */
int64_t bulk_batch_expires(const struct bulk_batch *b);

/* A new random id with this prefix: 128 bits. */
void bulk_new_id(const char *prefix, char out[BULK_ID_BYTES]);
/* Whether text is an id as bulk_new_id() makes them: no other text reaches the database or a path. */
bool bulk_is_id(const char *text, const char *prefix);

#endif
