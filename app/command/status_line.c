#include "app/command/status_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ERASE "\r\033[K"
#define DEFAULT_WIDTH 80

bool status_line_possible(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

void status_line_draw(const char *text)
{
    struct winsize size = {0};
    const int width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : DEFAULT_WIDTH;
    fprintf(stderr, ERASE "%.*s", width - 1, text);
    fflush(stderr);
}

void status_line_clear(void)
{
    fputs(ERASE, stderr);
}
