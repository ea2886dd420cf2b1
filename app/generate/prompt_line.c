#include "app/generate/prompt_line.h"

#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#if defined(QUIRE_HAS_LIBEDIT)
#include <histedit.h>
#endif

#define HISTORY 100

struct prompt_line {
    char prompt[16];
    bool is_typed;
    bool has_input; /* since the prompt was shown */
    bool has_paste; /* the terminal marks pasted text */
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

#define PASTE_BEGINS "\033[200~"
#define PASTE_ENDS "\033[201~"
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define NEWLINE "\342\220\244" /* U+2424: a line of the editor has no line breaks, so it shows this for one */
#define MAX_PASTE_BYTES ((size_t)16 << 20)

static struct prompt_line *owner_of(EditLine *editor)
{
    void *p = NULL;
    el_get(editor, EL_CLIENTDATA, &p);
    return p;
}

/* libedit's own reader continues after a signal. */
static int read_character(EditLine *editor, wchar_t *out)
{
    mbstate_t state = {0};
    for (;;) {
        char byte;
        if (!wait_for_input())
            return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        owner_of(editor)->has_input = true;
        size_t length = mbrtowc(out, &byte, 1, &state);
        if (length == (size_t)-1)
            state = (mbstate_t){0}; /* not a character: it is skipped */
        else if (length != (size_t)-2)
            return 1;
    }
}

static char *show_prompt(EditLine *editor)
{
    return owner_of(editor)->prompt;
}

/* Reads the pasted bytes up to the terminal's end mark, which is removed. */
static void read_paste(struct buffer *text)
{
    const size_t n_end = strlen(PASTE_ENDS);
    char byte;
    while (text->n < MAX_PASTE_BYTES && wait_for_input() && read(STDIN_FILENO, &byte, 1) == 1) {
        buffer_append(text, &byte, 1);
        if (text->failed)
            return;
        if (text->n >= n_end && memcmp(text->data + text->n - n_end, PASTE_ENDS, n_end) == 0) {
            text->n -= n_end;
            return;
        }
    }
}

/* Bound to the terminal's begin mark. The whole text becomes part of the line, with its line breaks. */
static unsigned char insert_paste(EditLine *editor, int character)
{
    struct buffer text = {0}, shown = {0};
    (void)character;
    read_paste(&text);
    while (text.n > 0 && (text.data[text.n - 1] == '\n' || text.data[text.n - 1] == '\r'))
        text.n--;
    /* Terminals send a carriage return for each line break of a paste. */
    for (size_t i = 0; i < text.n; i++) {
        const unsigned char c = (unsigned char)text.data[i];
        if (c == '\n' || c == '\r')
            buffer_append(&shown, NEWLINE, strlen(NEWLINE));
        else if (c >= 0x20 || c == '\t')
            buffer_append(&shown, &text.data[i], 1);
    }
    const char *line = buffer_text(&shown);
    const bool done = line && (shown.n == 0 || el_insertstr(editor, line) == 0);
    buffer_free(&text);
    buffer_free(&shown);
    return done ? CC_REFRESH : CC_ERROR;
}

/* ---- history between sessions ---- */

/* Creates the directories. Returns false without a home. */
static bool history_path(char out[4096])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = state && *state == '/' ? snprintf(out, 4096, "%s/quire/history", state)
            : home && *home == '/' ? snprintf(out, 4096, "%s/.local/state/quire/history", home)
                                   : -1;
    if (n < 0 || n >= 4096)
        return false;
    for (char *at = out + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(out, 0700);
    }
    return true;
}

static void load_history(struct prompt_line *p)
{
    HistEvent event;
    char path[4096];
    if (history_path(path))
        history(p->history, &event, H_LOAD, path);
}

/* Other users cannot read it: the umask does not matter. */
static void save_history(struct prompt_line *p)
{
    HistEvent event;
    char path[4096];
    const int fd = history_path(path) ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    close(fd);
    history(p->history, &event, H_SAVE, path);
}

/* Ctrl and Alt with the left and the right arrow. libedit binds no keys with modifiers, and would insert their ends. */
static const char *const word_keys[][2] = {{"\033[1;5C", "em-next-word"},
                                           {"\033[1;3C", "em-next-word"},
                                           {"\033[1;5D", "ed-prev-word"},
                                           {"\033[1;3D", "ed-prev-word"}};

static int open_editor(struct prompt_line *p, struct quire_error *err)
{
    const char *term = getenv("TERM");
    HistEvent event;
    if (!p->is_typed)
        return QUIRE_OK;
    p->has_paste = term && strcmp(term, "dumb") != 0;
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
    for (size_t i = 0; i < sizeof word_keys / sizeof *word_keys; i++)
        el_set(p->editor, EL_BIND, word_keys[i][0], word_keys[i][1], NULL);
    el_wset(p->editor, EL_ADDFN, L"quire-paste", L"insert pasted text", insert_paste); /* el_set() would leak copies */
    el_set(p->editor, EL_BIND, PASTE_BEGINS, "quire-paste", NULL);
    el_set(p->editor, EL_GETCFN, read_character);
    load_history(p);
    return QUIRE_OK;
}

static void close_editor(struct prompt_line *p)
{
    if (p->editor && p->history)
        save_history(p);
    if (p->history)
        history_end(p->history);
    if (p->editor)
        el_end(p->editor);
}

/* In place: the sign is longer than the line break. */
static void restore_newlines(char *line)
{
    const size_t n = strlen(NEWLINE);
    char *to = line;
    for (const char *from = line; *from;) {
        const bool is_sign = strncmp(from, NEWLINE, n) == 0;
        *to++ = is_sign ? '\n' : *from;
        from += is_sign ? n : 1;
    }
    *to = 0;
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
    fputs(p->has_paste ? PASTE_ON : "", stderr);
    const char *typed = el_gets(p->editor, &length);
    fputs(p->has_paste ? PASTE_OFF : "", stderr);
    *n = -1;
    if (!typed || length <= 0)
        return true;
    if (length > 1)
        history(p->history, &event, H_ENTER, typed);
    free(p->line);
    p->line = strdup(typed);
    p->capacity = p->line ? strlen(p->line) + 1 : 0;
    if (p->line)
        restore_newlines(p->line);
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

int prompt_line_open(struct prompt_line **out, struct quire_error *err)
{
    struct prompt_line *p = *out = calloc(1, sizeof *p);
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    p->is_typed = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    return open_editor(p, err);
}

bool prompt_line_was_typed(const struct prompt_line *p)
{
    return p->has_input;
}

enum prompt_line_end prompt_line_next(struct prompt_line *p, const char *prompt, const char **line)
{
    struct sigaction old[2];
    ssize_t n;
    snprintf(p->prompt, sizeof p->prompt, "%s", prompt);
    p->has_input = false;
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
