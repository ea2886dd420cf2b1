/* The file of `quire serve --models`: models by name, their targets, routes and prices. docs/reference/models-file.md
 * describes it, docs/reference/models-file.schema.json is its JSON Schema.
 *
 * A configuration is checked whole when it is read, and constant afterwards. It is reference-counted: a request holds
 * the configuration with which it began, so that a reload (SIGHUP) never changes a running request. Loop's thread, but
 * models_file_read() may run anywhere. Parsed with libyaml. Errors are QUIRE_INVALID with "FILE:LINE:COLUMN: model NAME:
 * field: what is wrong".
 */
#ifndef QUIRE_GATEWAY_MODELS_FILE_H
#define QUIRE_GATEWAY_MODELS_FILE_H

#include "base/status.h"
#include "server/gateway/file/experiment.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GATEWAY_MAX_MODELS 256
#define GATEWAY_MAX_TARGETS 64    /* of a model */
#define GATEWAY_MAX_FALLBACKS 16  /* of a model */

/* Prices in picodollars (1e-12) for each token: a price for 1,000 tokens with at most nine decimals is exact. */
struct gateway_price {
    uint64_t input, cached_input, output;
    bool is_set;
};

enum gateway_target_kind {
    GATEWAY_TARGET_MODEL,  /* `model: DIR`: an engine in this process */
    GATEWAY_TARGET_ENGINE, /* `engine: ADDRESS`: unix: or tcp:, with the directory of `tokenizer` */
    GATEWAY_TARGET_URL,    /* `url: https://…/v1`: an OpenAI-compatible server */
};

/* Strings are NULL where the file has no such field. */
struct gateway_target {
    enum gateway_target_kind kind;
    const char *name;      /* unique in its model: `name`, or made from the place below */
    const char *place;     /* the directory, address or URL (without a slash at its end) */
    const char *upstream_model; /* the "model" in requests to a URL; NULL: the model's own name */
    const char *key;       /* a URL's API key, read from api_key_env or api_key_file with the file */
    const char *engine_key_file; /* of an address */
    const char *const *options; /* [n_options]: "--max-model-len", "4096", …: options of quire serve for an engine */
    size_t n_options;
    uint32_t weight;       /* 1..1000; 1 by default */
    uint32_t max_concurrent; /* 0: no limit */
    uint32_t line, column; /* in the file */
};

/* How a model that stands for others chooses one. */
enum gateway_route_kind {
    GATEWAY_ROUTE_NONE,
    GATEWAY_ROUTE_COMPLEXITY,
    GATEWAY_ROUTE_LATENCY,
    GATEWAY_ROUTE_EXPERIMENT
};

struct gateway_route {
    enum gateway_route_kind kind;
    uint32_t simple, moderate, complex; /* for COMPLEXITY: indices of models */
    uint32_t among[GATEWAY_MAX_FALLBACKS]; /* for LATENCY: the models; the fastest at the moment is selected */
    uint32_t n_among;
    const struct gateway_experiment *experiment; /* for EXPERIMENT; else NULL */
};

/* Requests of several clients that an upstream takes as one (`batch:`): completions and embeddings. */
struct gateway_batching {
    uint32_t max_batch_size; /* 0: off */
    uint32_t max_wait_ms;
};

struct gateway_model {
    const char *name;
    const char *const *aliases;
    size_t n_aliases;
    const struct gateway_target *targets; /* none if it has a route */
    size_t n_targets;
    const char *tokenizer; /* a model's directory, for targets with an address */
    struct gateway_route route;
    uint32_t fallback[GATEWAY_MAX_FALLBACKS]; /* indices of models, tried in turn; never a circle */
    uint32_t n_fallback;
    struct gateway_price price;
    uint32_t avg_latency_ms; /* the operator's estimate until latency is measured; 0: not set */
    uint32_t max_tokens;     /* the most a request may ask for; 0: no limit */
    struct gateway_batching batching;
};

/* A tenant's own models: `overrides: {TENANT: {auto: small}}`. */
struct gateway_override {
    const char *tenant;
    const char *asked;  /* a name or alias */
    uint32_t model;     /* its replacement */
};

struct gateway_config {
    const struct gateway_model *models; /* the first is for requests without a name */
    size_t n_models;
    const struct gateway_override *overrides;
    size_t n_overrides;
};

/* Reads and checks a file. *out has one holder. key_file entries must be private files (no access for others). */
int models_file_read(const char *path, const struct gateway_config **out, struct quire_error *err);
const struct gateway_config *models_file_hold(const struct gateway_config *config);
void models_file_release(const struct gateway_config *config); /* NULL is allowed */
/* Returns the model that has this name or alias; NULL: no model has it. */
const struct gateway_model *models_file_find(const struct gateway_config *config, const char *name, size_t n);

#endif
