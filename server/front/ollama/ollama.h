/* Ollama's API: /api/chat, /api/generate, /api/embed and the lists of models. Private to server/front.
 *
 * Sampling defaults are this server's. Models are loaded by the server's start and stay: keep_alive is not read. */
#ifndef QUIRE_FRONT_OLLAMA_H
#define QUIRE_FRONT_OLLAMA_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>

struct field_shape;
struct generation_job;
struct http_exchange;
struct model_list;
struct model_view;
struct request_job;
struct served_model;

/* ---- ollama_read.c: on the pool, as the readers of request_readers.h ---- */
bool ollama_chat_read(struct generation_job *g, const struct quire_doc *body);
bool ollama_generate_read(struct generation_job *g, const struct quire_doc *body);

/* ---- ollama_models.c: on the pool ---- */
/* Appends ,"model": and its name without ":latest", unless a model is served under that name. The field must be a
 * string. */
bool ollama_put_model(struct buffer *o, const struct request_job *j, struct quire_value model, struct api_error *e);

/* The served name of the model that a request calls so, with or without ":latest". NULL, with an error in e. */
const char *ollama_name(const struct model_list *list, const struct model_view *model, const char *asked,
                        struct api_error *e);

/* Replies with an object, and frees it. On the loop. */
void ollama_reply(struct http_exchange *x, struct buffer *o);

/* ---- ollama_fields.c: on the loop ---- */

#define OLLAMA_SMALL_BODY 4096 /* bytes: a longer body has a prompt, and is not parsed on the loop */

/* Warns about fields of a small body that its shape does not have. Returns false with an error in e if there are some
 * and --strict-fields rejects them. Before the reply begins. */
bool ollama_check_fields(struct served_model *m, struct http_exchange *x, const struct field_shape *shape,
                         const struct quire_doc *body, struct api_error *e);

/* ---- routes, on the loop ---- */
void ollama_chat_start(struct served_model *m, struct http_exchange *x);
void ollama_generate_start(struct served_model *m, struct http_exchange *x);
void ollama_tags_start(struct served_model *m, struct http_exchange *x);
void ollama_ps_start(struct served_model *m, struct http_exchange *x);
void ollama_show_start(struct served_model *m, struct http_exchange *x);
/* ollama_embed.c */
void ollama_embed_start(struct served_model *m, struct http_exchange *x);
void ollama_embeddings_start(struct served_model *m, struct http_exchange *x);

/* ---- ollama_time.c ---- */

/* The time now as RFC 3339 with nanoseconds. */
#define OLLAMA_TIME_BYTES 40
void ollama_time(char out[OLLAMA_TIME_BYTES]);

#endif
