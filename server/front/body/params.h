/* The fields of a request that say how to generate: checked, with defaults filled in.
 *
 * What routes have in common is read here; messages and prompts are read in chat.c and
 * completions.c. A field that would change the answer and is not built is
 * refused by its name; a field nobody knows is ignored; null is the same as absent.
 */
#ifndef QUIRE_FRONT_PARAMS_H
#define QUIRE_FRONT_PARAMS_H

#include "request/spec.h"
#include "server/front/api/api_error.h"
#include "server/front/body/json_field.h"
#include "server/front/front.h"
#include "server/front/output/stop_strings.h"
#include "server/front/output/tool_parser.h"

#include <stdbool.h>
#include <stdint.h>

#define PARAMS_MAX_DEADLINE_MS 86400000
#define PARAMS_MAX_CACHE_TTL_S 2592000

/* What a request says of answers that are kept: "cache", "use_cache" and Cache-Control. */
struct params_cache {
    bool no_cache, no_store;
    uint32_t ttl_s, max_age_s; /* 0: not said */
    const char *name_space; /* borrowed from the body; NULL: none */
};

struct params {
    const char *model;       /* as the request says; borrowed from the body, NULL: absent */
    bool stream, include_usage, continuous_usage;
    struct request_spec spec; /* ours; the prompt and what is the engine's or the front end's to say come later */
    struct quire_value
        bad_words; /* checked strings, borrowed from the body; nothing: none. Of them, with a tokenizer, request_job.c makes spec's */
    struct stop_set stops;
    bool has_priority;
    uint32_t deadline_ms; /* until the first token; 0 = none */
    bool wants_timing;
    bool has_prediction; /* usage says what became of it; its tokens come with the prompts */
    bool has_max_tokens;
    const char *max_tokens_name; /* static: "max_tokens" or "max_completion_tokens" */
    uint32_t max_tokens; /* 0, not from the request: to the context's end */
    enum tool_format tool_format; /* of the calls to look for in the answer */
    bool one_tool_call; /* the others are left out */
    uint32_t stream_interval; /* tokens in an event of a stream */
    char *lead; /* chat: what a reply's content begins with (echo); ours, or NULL */
    size_t n_lead;
    bool include_stop, skip_special, return_token_ids, tokens_as_ids, echo, add_special;
    int64_t truncate; /* 0 = no, -1 = to the context, else so many tokens */
    bool truncate_end; /* the prompt's end goes, not its beginning */
    char request_id[65]; /* "": none */
    const char *cache_salt; /* borrowed from the body; NULL: none */
    struct params_cache cache;
};

/* What a check needs to know of the model. */
struct params_model {
    uint32_t vocab_size, max_model_len;
    const struct sampling_defaults *defaults;
};

/* Of chat and completions. `body` outlives p. False: e says what is wrong. params_free() in both
 * cases. */
bool params_read(struct params *p, const struct quire_doc *body, bool chat, const struct params_model *model,
                 struct api_error *e);
void params_free(struct params *p);

/* ---- for the routes that read fields of their own ---- */

/* What every generating route reads, to begin with; p->max_tokens is then still to be set. As
 * params_read() else. */
bool params_read_common(struct params *p, const struct quire_doc *body, const struct params_model *model,
                        struct api_error *e);
/* Stop strings, and how many tokens there may be (least ...), from the fields of these names. */
bool params_stops(struct params *p, const struct quire_doc *body, const char *name, struct api_error *e);
bool params_length(struct params *p, const struct quire_doc *body, const char *name, uint32_t least, uint32_t otherwise,
                   struct api_error *e);
/* Refuses each of n fields that asks for anything. */
bool params_refuse(const struct quire_doc *body, const char *const *names, size_t n, struct api_error *e);

/* Tools as the chat template takes them: nothing in *out when there are none. Borrowed. */
bool params_tools(const struct quire_doc *body, struct quire_value *out, struct api_error *e);

#endif
