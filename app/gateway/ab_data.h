/* What `quire ab report` knows of an experiment: from a running gateway, or from a log and its models file. Main thread. */
#ifndef QUIRE_APP_GATEWAY_AB_DATA_H
#define QUIRE_APP_GATEWAY_AB_DATA_H

#include "base/status.h"
#include "server/gateway/experiment/trial.h"

#include <jansson.h>

struct ab_experiment {
    char *name; /* owned, as all texts here */
    bool by_request;
    bool has_metric;
    enum gateway_metric metric; /* the one that decides */
    json_t *warnings; /* texts */
    char *models[GATEWAY_MAX_ARMS]; /* of the arms; trial->arms has their names */
    uint32_t weights[GATEWAY_MAX_ARMS];
    struct trial *trial;
    uint64_t n_other; /* lines of a log that belong to another run */
};

struct ab_list {
    struct ab_experiment items[GATEWAY_MAX_MODELS];
    size_t n;
};
void ab_list_free(struct ab_list *l);

/* Reads the reply of GET /gateway/experiments. QUIRE_INVALID: it is not one. */
int ab_read_reply(const json_t *reply, struct ab_list *out, struct quire_error *err);

/* Reads a log of `--log-requests`, as text or JSON, with the models file of that time: path "-" is standard input. Lines that are
 * not a request's are skipped. */
int ab_read_log(const char *path, const char *models, struct ab_list *out, struct quire_error *err);

#endif
