/* The API of llama.cpp's server: /completion, /props, /slots and /apply-template. Shared by the files of this folder.
 * Readers run on the text pool's threads; they return false with an error that names the field. */
#ifndef QUIRE_FRONT_LLAMA_CPP_H
#define QUIRE_FRONT_LLAMA_CPP_H

#include "server/front/body/generation_job.h"
#include "server/front/output/json_out.h"

/* ---- llama_cpp_fields.c ---- */

/* Checks the fields of samplers and options that Quire does not have: each must have the value that switches it off.
 * Fields that change only the speed must have the right type. */
bool llama_cpp_check_fields(const struct quire_doc *body, struct api_error *e);
/* A number in this range; absent: *out stays. */
bool llama_cpp_number(const struct quire_doc *body, const char *name, double low, double high, double *out,
                      struct api_error *e);
/* Writes the body that generation_job_common() reads: without the fields that this folder reads itself, and with values
 * in the form of the other routes. */
bool llama_cpp_put_body(struct buffer *o, const struct quire_doc *body, struct api_error *e);
/* Applies repeat_penalty, repeat_last_n, seed and samplers to a spec that has the other fields. */
bool llama_cpp_read_samplers(struct request_spec *spec, const struct quire_doc *body, struct api_error *e);

/* ---- llama_cpp_bias.c ---- */

/* Reads "logit_bias": pairs of an id or a text and a number or false; or an object of such pairs. spec owns the list. */
bool llama_cpp_read_bias(struct request_spec *spec, const struct quire_doc *body, const struct model_view *served,
                         struct api_error *e);

/* ---- llama_cpp_prompt.c ---- */

/* Reads "prompt": a text, an array of token ids and texts, or an array of prompts. */
bool llama_cpp_read_prompt(struct generation_job *g, const struct quire_doc *body);

/* ---- llama_cpp_pick.c ---- */

/* Reads "response_fields" and writes it as an array of different strings; [] if it is absent. */
bool llama_cpp_read_fields(struct buffer *o, const struct quire_doc *body, struct api_error *e);
/* Writes an object with the fields of a result, which is an object. fields: an array of llama_cpp_read_fields(). The key
 * of a field is its path: "timings/predicted_n" is that member of "timings". Absent fields are left out. */
void llama_cpp_put_picked(struct buffer *o, const struct buffer *result, const struct buffer *fields);

/* ---- llama_cpp_settings.c ---- */

/* Writes the object of settings, as generation_settings and the params of a slot. */
void llama_cpp_put_settings(struct buffer *o, const struct params *p);

#endif
