/* A chat with a local engine: messages, the context that they must fit into, and the settings that commands change. Main
 * thread, on the loop. */
#ifndef QUIRE_APP_GENERATE_CHAT_H
#define QUIRE_APP_GENERATE_CHAT_H

#include "app/generate/answer.h"
#include "app/generate/conversation.h"
#include "text/quire_chat.h"

struct chat {
    struct request_flags *flags; /* borrowed, as the next */
    const char *model_name;
    struct answer *answer; /* the last one; borrowed */
    struct conversation conversation;
    struct buffer last_prompt; /* of a chat without a template, for /retry */
    struct buffer again; /* the message that /retry repeats */
    uint32_t n_answers;
    bool stopped; /* SIGTERM; SIGINT stops only the current answer */
};

/* Whether messages go through a chat template. */
static inline bool chat_has_template(const struct chat *c)
{
    return !c->flags->raw && quire_text_has_chat(local_engine_text(c->answer->engine));
}

/* Answers a message and prints the answer and its speed. If the messages no longer fit into the context, drops the oldest
 * ones and says so. A message that fails leaves the conversation as it was. */
int chat_answer(struct chat *c, const char *message);

/* Messages from a terminal until the user ends the chat. A message that fails is reported, and the chat goes on. */
int chat_on_terminal(struct chat *c);

void chat_close(struct chat *c);

#endif
