/* The commands of a chat: /help, /bye, /clear and others. Main thread. */
#ifndef QUIRE_APP_GENERATE_CHAT_COMMANDS_H
#define QUIRE_APP_GENERATE_CHAT_COMMANDS_H

struct chat;

enum chat_action {
    CHAT_IS_MESSAGE, /* no command: the text is for the model */
    CHAT_CONTINUES,  /* done, or wrong and reported */
    CHAT_RETRIES,    /* the chat's message `again` is answered once more */
    CHAT_ENDS,
};

/* A text is a command if it is one line that begins with "/" and a word of letters: "/etc/passwd" is a message. */
enum chat_action chat_command(struct chat *c, const char *text);

#endif
