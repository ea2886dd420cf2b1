/* The messages of a chat, as the chat template takes them. Owns them. Main thread. */
#ifndef QUIRE_APP_GENERATE_CONVERSATION_H
#define QUIRE_APP_GENERATE_CONVERSATION_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

struct conversation {
    json_t *messages; /* [{"role", "content"}]; a system message comes first */
};

int conversation_open(struct conversation *c, const char *system, struct quire_error *err);
void conversation_close(struct conversation *c);

/* QUIRE_INVALID if the text is not UTF-8. */
int conversation_add(struct conversation *c, const char *role, const char *text, struct quire_error *err);
/* Removes the last message if it has this role. */
void conversation_drop_last(struct conversation *c, const char *role);
/* Removes the oldest question with its answer. Returns false if only one question is left. */
bool conversation_drop_oldest(struct conversation *c);
/* Removes all messages but the system message. */
void conversation_clear(struct conversation *c);
/* Sets or, with "", removes the system message. */
int conversation_set_system(struct conversation *c, const char *text, struct quire_error *err);
/* NULL: none. Borrowed until the next change. */
const char *conversation_system(const struct conversation *c);
const char *conversation_last(const struct conversation *c, const char *role);

/* A file of {"messages": [...]}; conversation_load() also takes the list alone. Nothing changes on an error. */
int conversation_save(const struct conversation *c, const char *path, struct quire_error *err);
int conversation_load(struct conversation *c, const char *path, struct quire_error *err);

#endif
