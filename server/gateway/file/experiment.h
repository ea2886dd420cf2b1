/* An experiment of a models file: a model with `route: experiment`, whose arms are other models. Constant. */
#ifndef QUIRE_GATEWAY_FILE_EXPERIMENT_H
#define QUIRE_GATEWAY_FILE_EXPERIMENT_H

#include <stdbool.h>
#include <stdint.h>

#define GATEWAY_MAX_ARMS 16

/* What is measured of each request, as a whole number. */
enum gateway_metric {
    GATEWAY_ERRORS,        /* 1: a 5xx or 429; of all requests but the client's errors */
    GATEWAY_CANCELLED,     /* 1: the client has gone; of all requests but the client's errors */
    GATEWAY_TTFT,          /* microseconds to the first token of a stream */
    GATEWAY_LATENCY,       /* microseconds to the end of the answer */
    GATEWAY_OUTPUT_TOKENS, /* tokens of the answer */
    GATEWAY_CACHED_TOKENS, /* tokens of the prompt that a prefix cache had */
    GATEWAY_CACHE_HITS,    /* 1: the response cache answered */
    GATEWAY_COST,          /* picodollars */
    GATEWAY_N_METRICS
};

/* How a metric is called in files, on command lines and in replies. */
struct gateway_metric_name {
    const char *name; /* "ttft" */
    const char *unit; /* unit of the whole number: "us", "tokens", "picodollars", "requests" */
};
extern const struct gateway_metric_name gateway_metrics[GATEWAY_N_METRICS];

struct gateway_arm {
    const char *name;
    uint32_t model;  /* index */
    uint32_t weight; /* 1..1000 */
    uint32_t line, column; /* position of its model in the file */
};

struct gateway_experiment {
    bool by_request;       /* each request is assigned by itself; false: each user */
    bool has_metric;
    enum gateway_metric metric; /* the one that decides, chosen in advance */
    const struct gateway_arm *arms; /* [n_arms]; the first is the control */
    uint32_t n_arms;       /* 2..GATEWAY_MAX_ARMS */
};

#endif
