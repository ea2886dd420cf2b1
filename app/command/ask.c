#include "app/command/ask.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum command_answer command_ask(const char *question, bool preferred)
{
    char line[64];
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return COMMAND_NO_TERMINAL;
    for (;;) {
        fprintf(stderr, "%s [%s] ", question, preferred ? "Y/n" : "y/N");
        fflush(stderr);
        if (!fgets(line, sizeof line, stdin)) {
            fputc('\n', stderr);
            return COMMAND_NO;
        }
        const char *word = line + strspn(line, " \t");
        const int first = tolower((unsigned char)word[0]);
        if (first == '\n')
            return preferred ? COMMAND_YES : COMMAND_NO;
        if (first == 'y' || first == 'n')
            return first == 'y' ? COMMAND_YES : COMMAND_NO;
    }
}
