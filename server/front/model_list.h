/* The models of this server, as the threads of the text pool see them: constant after construction.
 *
 * A configuration lives as long as the front. The facts belong to the engines at the time when the list was made; a
 * new engine causes a new list. Only the loop makes a list; any thread may hold and release one.
 */
#ifndef QUIRE_FRONT_MODEL_LIST_H
#define QUIRE_FRONT_MODEL_LIST_H

#include "base/hash.h"
#include "request/spec.h"
#include "server/front/api/api_error.h"
#include "server/front/model_about.h"
#include "server/front/model_facts.h"
#include "server/front/tools/notation.h"
#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quire_grammars;
struct response_store;

/* The configuration of a model when it is added. */
struct model_config {
    char **names; /* [n_names], the first is for requests without a name */
    size_t n_names;
    char *root;   /* path or name of the loaded model */
    struct model_about about;
    const struct quire_text *text;
    struct quire_grammars *grammars; /* NULL: requests with a grammar are rejected */
    bool flexible_whitespace;        /* JSON answers, by default */
    const struct sampling_defaults *sampling; /* from the checkpoint */
    enum quire_specials specials_in_messages;
    enum tool_format tool_format;  /* of its tool calls */
    enum reasoning_format reasoning_format;
    struct special_tags tool_tags, reasoning_tags; /* of these formats */
    bool keeps_billing_header;
    bool chat_tells_time;          /* the chat template uses the time: the same words give another prompt later */
    bool shows_tools;              /* the chat template shows tools to the model */
    bool strict_fields;            /* unknown fields are errors */
    bool compares_questions;       /* the response cache compares them with answered questions */
    bool for_vectors;              /* if another model generates, it answers the routes for vectors and scores */
    uint32_t max_choices;          /* of a request */
    struct response_store *responses; /* any thread may use it; NULL: nothing is stored */
    struct key256 prompt_identity; /* part of the key of entries that are cached by text */
};

struct model_view {
    const struct model_config *config;
    const struct model_facts *facts;
};

struct model_list {
    _Atomic uint32_t n_holders; /* private to model_list.c */
    uint32_t n;
    struct model_view models[];
};

/* Makes a list of n models, whose facts it holds. The caller is the first holder. NULL: out of memory. */
const struct model_list *model_list_new(const struct model_view *models, uint32_t n);
const struct model_list *model_list_hold(const struct model_list *list);
void model_list_release(const struct model_list *list); /* NULL is allowed */
/* NULL: no model of the list has this configuration. */
const struct model_view *model_list_find(const struct model_list *list, const struct model_config *config);
/* Returns a model of the list other than this one that has the name; NULL: no such model. */
const struct model_view *model_list_other(const struct model_list *list, const struct model_view *model,
                                          const char *name);

/* Returns whether it is one of the model's names. */
bool model_has_name(const struct model_config *config, const char *name);
/* Returns the served name for the name in a request (NULL: the first). NULL, with a 404 in e: unknown; with a 400:
 * another model of the list has it, but the request's route does not serve that model. */
const char *model_name(const struct model_list *list, const struct model_view *model, const char *asked,
                       struct api_error *e);

#endif
