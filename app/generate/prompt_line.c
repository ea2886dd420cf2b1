#include "app/generate/prompt_line.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
#if defined(QUIRE_HAS_LIBEDIT)
#include <histedit.h>
#endif

#define HISTORY 100

struct prompt_line {
    char prompt[16];
    bool is_typed;
    char *line;
    size_t capacity;
#if defined(QUIRE_HAS_LIBEDIT)
    EditLine *editor; /* NULL: not a terminal */
    History *history;
#endif
};

/* ---- signals while it waits ---- */

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

/* Without SA_RESTART: a signal interrupts the wait for a line. */
static void take_signals(struct sigaction old[2])
{
    struct sigaction ours = {.sa_handler = on_signal};
    caught = 0;
    sigaction(SIGINT, &ours, &old[0]);
    sigaction(SIGTERM, &ours, &old[1]);
}

static void give_signals_back(const struct sigaction old[2])
{
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
}

/* Waits until a byte can be read; false: a signal came first. A signal just before poll() is noticed when poll() times
 * out, at most a tenth of a second later. */
static bool wait_for_input(void)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!caught)
        if (poll(&fd, 1, 100) > 0)
            return true;
    return false;
}

/* ---- with libedit ---- */

#if defined(QUIRE_HAS_LIBEDIT)

/* libedit's own reader continues after a signal. */
static int read_character(EditLine *editor, wchar_t *out)
{
    mbstate_t state = {0};
    (void)editor;
    for (;;) {
        char byte;
        if (!wait_for_input())
            return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        size_t length = mbrtowc(out, &byte, 1, &state);
        if (length == (size_t)-1)
            state = (mbstate_t){0}; /* not a character: it is skipped */
        else if (length != (size_t)-2)
            return 1;
    }
}

static char *show_prompt(EditLine *editor)
{
    void *p = NULL;
    el_get(editor, EL_CLIENTDATA, &p);
    return ((struct prompt_line *)p)->prompt;
}

static int open_editor(struct prompt_line *p, struct quire_error *err)
{
    HistEvent event;
    if (!p->is_typed)
        return QUIRE_OK;
    /* Input is UTF-8, whatever the terminal's other settings are. */
    setlocale(LC_CTYPE, "C.UTF-8");
    p->editor = el_init("quire", stdin, stderr, stderr);
    p->history = history_init();
    if (!p->editor || !p->history)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    history(p->history, &event, H_SETSIZE, HISTORY);
    el_set(p->editor, EL_CLIENTDATA, p);
    el_set(p->editor, EL_PROMPT, show_prompt);
    el_set(p->editor, EL_EDITOR, "emacs");
    el_set(p->editor, EL_SIGNAL, 0);
    el_set(p->editor, EL_HIST, history, p->history);
    el_set(p->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(p->editor, EL_GETCFN, read_character);
    return QUIRE_OK;
}

static void close_editor(struct prompt_line *p)
{
    if (p->history)
        history_end(p->history);
    if (p->editor)
        el_end(p->editor);
}

/* Returns false without an editor. *n < 0: no line. */
static bool edit_line(struct prompt_line *p, ssize_t *n)
{
    HistEvent event;
    int length = 0;
    if (!p->editor)
        return false;
    el_resize(p->editor);
    el_set(p->editor, EL_PREP_TERM, 1); /* before the prompt is shown, so that a Ctrl-D at that moment is not lost */
    const char *typed = el_gets(p->editor, &length);
    *n = -1;
    if (!typed || length <= 0)
        return true;
    if (length > 1)
        history(p->history, &event, H_ENTER, typed);
    free(p->line);
    p->line = strdup(typed);
    p->capacity = p->line ? strlen(p->line) + 1 : 0;
    *n = p->line ? (ssize_t)strlen(p->line) : -1;
    return true;
}

#else

static int open_editor(struct prompt_line *p, struct quire_error *err)
{
    (void)p;
    (void)err;
    return QUIRE_OK;
}

static void close_editor(struct prompt_line *p)
{
    (void)p;
}

static bool edit_line(struct prompt_line *p, ssize_t *n)
{
    (void)p;
    (void)n;
    return false;
}

#endif

/* ---- public functions ---- */

int prompt_line_open(const char *prompt, struct prompt_line **out, struct quire_error *err)
{
    struct prompt_line *p = *out = calloc(1, sizeof *p);
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    snprintf(p->prompt, sizeof p->prompt, "%s", prompt);
    p->is_typed = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    return open_editor(p, err);
}

enum prompt_line_end prompt_line_next(struct prompt_line *p, const char **line)
{
    struct sigaction old[2];
    ssize_t n;
    take_signals(old);
    if (!edit_line(p, &n)) {
        if (p->is_typed)
            fputs(p->prompt, stderr);
        /* A terminal delivers whole lines. Lines of a pipe that getline() has already read need no wait. */
        n = !p->is_typed || wait_for_input() ? getline(&p->line, &p->capacity, stdin) : -1;
    }
    give_signals_back(old);
    if (n < 0) {
        clearerr(stdin);
        return caught == SIGINT ? PROMPT_INTERRUPTED : PROMPT_END;
    }
    while (n > 0 && (p->line[n - 1] == '\n' || p->line[n - 1] == '\r'))
        p->line[--n] = 0;
    *line = p->line;
    return PROMPT_LINE;
}

void prompt_line_close(struct prompt_line *p)
{
    if (!p)
        return;
    close_editor(p);
    free(p->line);
    free(p);
}
