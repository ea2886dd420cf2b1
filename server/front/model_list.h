/* The models of this server, as threads of the text pool see them: nothing here changes once it is made.
 *
 * A configuration lives as long as the front. Facts are those of the engines that were there when the list was made; when an
 * engine comes, the loop makes another list. Making one is the loop's; any thread may hold and release one.
 */
#ifndef QUIRE_FRONT_MODEL_LIST_H
#define QUIRE_FRONT_MODEL_LIST_H

#include "base/hash.h"
#include "request/spec.h"
#include "server/front/api/api_error.h"
#include "server/front/model_facts.h"
#include "server/front/output/tool_parser.h"
#include "text/quire_text.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is said of a model when it is added. */
struct model_config {
    char **names; /* [n_names], the first is for requests that name none */
    size_t n_names;
    char *root;   /* path or name of what was loaded */
    const struct quire_text *text;
    const struct sampling_defaults *sampling; /* the checkpoint's */
    enum quire_specials specials_in_messages;
    enum tool_format tool_format;  /* of its calls */
    bool keeps_billing_header;
    bool is_tool_tag_special;      /* the tokenizer's decoder leaves the tag out where it leaves out special tokens */
    bool chat_tells_time;          /* the chat template asks for the time: the same words are another prompt later */
    bool compares_questions;       /* the response cache compares them with those that were answered */
    bool for_vectors;              /* where another model generates, it answers the routes of vectors and scores */
    uint32_t max_choices;          /* of a request */
    struct key256 prompt_identity; /* under which what is keyed by text is kept */
};

struct model_view {
    const struct model_config *config;
    const struct model_facts *facts;
};

struct model_list {
    _Atomic uint32_t n_holders; /* model_list.c's */
    uint32_t n;
    struct model_view models[];
};

/* Of n models, whose facts it holds. The caller is its first holder. NULL: no memory. */
const struct model_list *model_list_new(const struct model_view *models, uint32_t n);
const struct model_list *model_list_hold(const struct model_list *list);
void model_list_release(const struct model_list *list); /* NULL is fine */
/* NULL: no model of the list has this configuration. */
const struct model_view *model_list_find(const struct model_list *list, const struct model_config *config);
/* Another model of the list than this one that has the name; NULL: none. */
const struct model_view *model_list_other(const struct model_list *list, const struct model_view *model,
                                          const char *name);

/* Whether it is one of the model's names. */
bool model_has_name(const struct model_config *config, const char *name);
/* The served name for what a request asks for (NULL: the first). NULL, with a 404 in e: there is none; with a 400:
 * another model of the list has it, which the request's route is not for. */
const char *model_name(const struct model_list *list, const struct model_view *model, const char *asked,
                       struct api_error *e);

#endif
