/* The readers of requests' bodies, one for each route, for jobs: chat.c, completions.c, responses.c, messages.c and
 * tokenize.c. On the text pool's threads. A reader returns false with an error in the job. */
#ifndef QUIRE_SERVER_FRONT_REQUEST_READERS_H
#define QUIRE_SERVER_FRONT_REQUEST_READERS_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"
#include "server/front/body/request_job.h"
#include "text/quire_json.h"

#include <stdbool.h>

struct generation_job;

#define CHAT_MAX_MESSAGES 65536
/* Writes a list of text parts as one JSON string, one part per line, as in vLLM: templates expect strings. types ends
 * with NULL. Returns false with an error in e that names the field. */
bool chat_put_parts(struct buffer *o, struct quire_value parts, const char *const *types, const char *field,
                    struct api_error *e);
/* Writes the beginning of a message, up to its content; o holds an unfinished array. */
void chat_put_message(struct buffer *o, const char *role);
/* Writes the arguments of a call, a JSON string, as the object that templates expect; a string that is no JSON stays a
 * string. Returns false with an error in e that names the field. */
bool chat_put_arguments(struct buffer *o, struct quire_value arguments, const char *field, struct api_error *e);
/* Takes over an array of messages in the form of a template. It came from the field of this (static) name. The job
 * then owns the buffer's content. */
bool chat_take(struct request_job *j, struct buffer *messages, const char *name);
/* A variable of the chat template that follows from a field of one API only. */
struct chat_variable {
    const char *name, *json; /* json: its value */
};
/* Appends the chat's variables to an empty buffer, as a JSON object: chat_template_kwargs; what it does not have comes from
 * `more`, and the rest from the fields reasoning_effort and enable_thinking. Without variables it appends nothing. Returns
 * false with an error in e. */
bool chat_variables_add(struct buffer *o, const struct quire_doc *body, const struct chat_variable *more, size_t n_more,
                        struct api_error *e);
/* The same for the job's chat. */
bool chat_read_variables(struct request_job *j, const struct quire_doc *body, const struct chat_variable *more,
                         size_t n_more);
/* Only messages, tools and kwargs. */
bool chat_read_messages(struct request_job *j, const struct quire_doc *body);
bool chat_read(struct generation_job *g, const struct quire_doc *body);
/* A text, or a list of ids. */
bool completions_take_prompt(struct request_job *j, struct quire_value prompt, struct request_item *item);
bool completions_read(struct generation_job *g, const struct quire_doc *body);
bool responses_read(struct generation_job *g, const struct quire_doc *body);
/* The model's output is parsed for calls if the prompt lists tools (checked; may be empty). choice: of a chat. */
bool chat_use_tools(struct generation_job *g, struct quire_value tools, struct quire_value choice, bool parallel);
/* How reasoning is found in the answer. A grammar holds behind it. */
void chat_choose_reasoning(struct generation_job *g);
bool llama_cpp_read(struct generation_job *g, const struct quire_doc *body);
bool messages_read(struct generation_job *g, const struct quire_doc *body);
/* Reads only the fields of the prompt. */
bool messages_count_read(struct request_job *j, const struct quire_doc *body);
bool tokenize_read(struct request_job *j, const struct quire_doc *body);
bool detokenize_read(struct request_job *j, const struct quire_doc *body);

#endif
