/* The fields of a request that control generation: checked, with defaults filled in.
 *
 * This reads the fields that routes have in common. chat.c and completions.c read messages and prompts. An unsupported
 * field that would change the answer is rejected with an error that names it. null is the same as absent. Unknown fields
 * are ignored here: server/front/fields/ finds them, and its tables have the names of all others.
 */
#ifndef QUIRE_FRONT_PARAMS_H
#define QUIRE_FRONT_PARAMS_H

#include "request/spec.h"
#include "server/front/api/api_error.h"
#include "server/front/body/json_field.h"
#include "server/front/front.h"
#include "server/front/grammar/grammar_request.h"
#include "server/front/output/stop_strings.h"
#include "server/front/responses/response_store.h"
#include "server/front/tools/notation.h"

#include <stdbool.h>
#include <stdint.h>

#define PARAMS_MAX_DEADLINE_MS 86400000
#define PARAMS_MAX_CACHE_TTL_S 2592000

/* The fields for the response cache: "cache", "use_cache" and Cache-Control. */
struct params_cache {
    bool no_cache, no_store;
    uint32_t ttl_s, max_age_s; /* 0: not set */
};

/* The fields that matter only while the body is read. Texts are borrowed from the body. */
struct params_body {
    const char *model; /* NULL: absent */
    const char *cache_salt, *cache_name_space; /* NULL: not set */
    struct quire_value bad_words; /* checked strings; empty: not set. generation_job.c encodes them */
    int64_t thinking_budget; /* tokens of the reasoning; negative: no limit */
    const char *budget_name; /* static; the field that set it */
    bool add_special;
};

struct params {
    bool stream, include_usage, continuous_usage;
    /* Owned, malloc'd, with all it holds; NULL: not read. The prompt and the values from the engine or front end come
     * later. */
    struct request_spec *spec;
    struct stop_set *stops; /* owned; NULL: no stop strings */
    struct grammar_request *grammar; /* the answer's form; owned; NULL: free. spec's grammar follows from it */
    bool has_priority;
    uint32_t deadline_ms; /* until the first token; 0: no deadline */
    bool wants_timing;
    bool has_prediction; /* usage reports its result; its tokens come with the prompts */
    bool has_max_tokens;
    const char *max_tokens_name; /* static: "max_tokens" or "max_completion_tokens" */
    uint32_t max_tokens; /* 0 if it is not in the request: up to the end of the context */
    bool clamps_max_tokens; /* to the context; otherwise too large a number is an error */
    bool streams_raw_calls; /* arguments of calls are passed on before it is known whether they are JSON */
    enum tool_format tool_format; /* the format in which the answer is parsed for calls */
    char *tools; /* the request's, if the format needs the types of arguments; owned, or NULL */
    bool one_tool_call; /* further calls are left out */
    enum reasoning_format reasoning_format; /* the format in which the answer is parsed for reasoning */
    const struct special_tags *tags[2]; /* special tokens that the parsers must see; NULL: none */
    uint32_t stream_interval; /* tokens in an event of a stream */
    char *lead; /* chat: the beginning of a reply's content (echo); owned, or NULL */
    size_t n_lead;
    bool include_stop, skip_special, return_token_ids, tokens_as_ids, echo;
    bool shows_prompt; /* the reply has the prompt's text beside the answer */
    int64_t truncate; /* 0: no; -1: to the context; otherwise the number of tokens */
    bool truncate_end; /* cuts the prompt's end instead of its beginning */
    char request_id[65]; /* "": not set */
    struct params_cache cache;
    struct response_record *response; /* of /v1/responses; owned, or NULL */
};

/* The facts about the model that the checks need. */
struct params_model {
    uint32_t vocab_size, max_model_len;
    const struct sampling_defaults *defaults;
    bool flexible_whitespace; /* JSON answers, by default */
};

/* For chat and completions. `body` must outlive `once`. Returns false with an error in e. Call params_free() always. */
bool params_read(struct params *p, struct params_body *once, const struct quire_doc *body, bool chat,
                 const struct params_model *model, struct api_error *e);
void params_free(struct params *p);

/* ---- for the routes that read fields of their own ---- */

/* Reads the common fields of every generating route; p->max_tokens must still be set. Otherwise as params_read(). */
bool params_read_common(struct params *p, struct params_body *once, const struct quire_doc *body,
                        const struct params_model *model, struct api_error *e);
/* Read stop strings and the number of tokens (minimum least) from the fields of these names. */
bool params_stops(struct params *p, const struct quire_doc *body, const char *name, struct api_error *e);
bool params_length(struct params *p, const struct quire_doc *body, const char *name, uint32_t least, uint32_t otherwise,
                   struct api_error *e);
/* Reads a format in the style of response_format from this field; restricts the answer at most once. */
bool params_format(struct params *p, struct quire_value format, const char *field, const struct params_model *model,
                   struct api_error *e);
/* Rejects each of n fields that has an effective value. */
bool params_refuse(const struct quire_doc *body, const char *const *names, size_t n, struct api_error *e);

/* Tools in the form of the chat template: *out is empty without tools. Borrowed. */
bool params_tools(const struct quire_doc *body, struct quire_value *out, struct api_error *e);

#endif
