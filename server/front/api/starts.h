/* The functions with which routes start, and those that end all that have started. Loop's thread. A function that ends
 * them answers each with its error. */
#ifndef QUIRE_SERVER_FRONT_API_STARTS_H
#define QUIRE_SERVER_FRONT_API_STARTS_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"

#include <stdbool.h>

struct api_dialect;
struct field_shape;
struct front;
struct http_exchange;
struct quire_doc;
struct request_job;
struct served_model;
struct wire_refuse;
struct wire_stats;

/* ---- reply_*.c: described in generation.h ---- */
extern const struct api_dialect api_chat, api_completions, api_responses, api_messages, api_llama_cpp, api_ollama_chat,
    api_ollama_generate;

/* ---- generation.c ---- */
void generation_start(struct served_model *m, struct http_exchange *x, const struct api_dialect *dialect);
/* Ends all of them with an error. */
void generations_end(struct served_model *m, const struct api_error *e);

/* ---- tokenize.c ---- */
void tokenize_start(struct served_model *m, struct http_exchange *x);
void detokenize_start(struct served_model *m, struct http_exchange *x);
/* A route that only needs text work. Both functions run on the pool. */
struct utility_calls {
    bool (*read)(struct request_job *j, const struct quire_doc *body);
    void (*put)(struct buffer *o, const struct request_job *j); /* writes the reply */
    bool counts_only; /* it only needs the number of tokens of a text */
    const struct field_shape *shape; /* the body's; NULL: its fields are not checked */
};
void utility_start(struct served_model *m, struct http_exchange *x, const struct utility_calls *calls);
/* Ends all of them with an error. */
void utilities_end(struct front *f, const struct api_error *e);

/* ---- tokenizer_info.c ---- */
void tokenizer_info_start(struct served_model *m, struct http_exchange *x);

/* ---- llama_cpp/llama_cpp_routes.c ---- */
void props_start(struct served_model *m, struct http_exchange *x);
void props_set_start(struct served_model *m, struct http_exchange *x);
/* 501: a route of llama.cpp's server that this one has not. */
void llama_cpp_missing_start(struct served_model *m, struct http_exchange *x);
void slots_start(struct served_model *m, struct http_exchange *x);
void apply_template_start(struct served_model *m, struct http_exchange *x);

/* ---- messages.c ---- */
void messages_count_start(struct served_model *m, struct http_exchange *x);

/* ---- responses/stored_routes.c ---- */
void response_get_start(struct served_model *m, struct http_exchange *x);
void response_delete_start(struct served_model *m, struct http_exchange *x);
/* Ends all of them with an error. */
void stored_requests_end(struct front *f, const struct api_error *e);

/* ---- pins.c ---- */
void pin_start(struct served_model *m, struct http_exchange *x);
void pins_end(struct served_model *m, const struct api_error *e);

/* ---- cache_routes.c ---- */
void cache_stats_start(struct served_model *m, struct http_exchange *x);
void cache_clear_start(struct served_model *m, struct http_exchange *x);
/* Returns whether x comes from an admin and the response cache is on. Otherwise an error was already sent. */
bool cache_may(const struct served_model *m, struct http_exchange *x);
/* Frees the pending requests without replies; their exchanges are gone. */
void cache_clears_end(struct front *f);

/* ---- cache_entries.c ---- */
void cache_entries_start(struct served_model *m, struct http_exchange *x);
void cache_import_start(struct served_model *m, struct http_exchange *x);

/* ---- vectors/vectors.c ---- */
void embeddings_start(struct served_model *m, struct http_exchange *x);
void score_start(struct served_model *m, struct http_exchange *x);
void rerank_start(struct served_model *m, struct http_exchange *x);
/* Ends all of them with an error. */
void vectors_end(struct served_model *m, const struct api_error *e);
/* ---- vectors/embed_question.c ---- */
/* Ends the embedding of this process' own texts without a vector. */
void embeddings_end(struct served_model *m);

/* ---- command.c ---- */
void unpin_start(struct served_model *m, struct http_exchange *x);
void policy_start(struct served_model *m, struct http_exchange *x);
/* Answers the oldest command. refuse NULL: it was executed. */
void commands_answer(struct served_model *m, const struct wire_refuse *refuse);
/* Answers the pending commands with an error: the engine is unavailable. */
void commands_end(struct served_model *m);

/* ---- ui.c ---- */
void root_start(struct served_model *m, struct http_exchange *x);
void ui_start(struct served_model *m, struct http_exchange *x);

/* ---- openapi.c ---- */
void openapi_start(struct served_model *m, struct http_exchange *x);

/* ---- scrape.c ---- */
/* stats NULL: the engine did not answer. */
typedef void (*scrape_answer)(struct served_model *m, struct http_exchange *x, const struct wire_stats *stats);
/* Calls answer with the engine's next statistics, or without them after a timeout. */
void scrape_ask(struct served_model *m, struct http_exchange *x, scrape_answer answer);
/* Requests statistics from the engine, unless a request is in flight. Returns false without an engine. */
bool scrapes_question(struct served_model *m);
void scrape_start(struct served_model *m, struct http_exchange *x);
/* stats NULL: none will come. */
void scrapes_answer(struct served_model *m, const struct wire_stats *stats);

#endif
