/* What a terminal of 20 columns gets of an answer, in pieces of every size: words, indentation, wide characters, code. */
#include "app/generate/screen.h"

#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

/* Writes an answer to a terminal, in pieces of n bytes, and returns what arrived there without carriage returns. */
static const char *shown(const char *answer, size_t n, unsigned short width)
{
    static char out[4096];
    struct winsize size = {.ws_row = 10, .ws_col = width};
    struct screen s = {0};
    int master, slave;
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    FILE *file = fdopen(slave, "w");
    assert_non_null(file);
    screen_begin(&s, file);
    for (size_t at = 0; answer[at];) {
        size_t end = at + n < strlen(answer) ? at + n : strlen(answer);
        while (((unsigned char)answer[end] & 0xc0) == 0x80) /* whole characters */
            end++;
        screen_write(&s, answer + at, end - at);
        at = end;
    }
    screen_end(&s);
    screen_close(&s);
    fputs("\n#", file); /* the end */
    fflush(file);
    size_t length = 0;
    while (!memchr(out, '#', length))
        length += (size_t)read(master, out + length, sizeof out - length);
    fclose(file);
    close(master);
    char *to = out;
    for (size_t i = 0; i + 2 < length; i++)
        if (out[i] != '\r')
            *to++ = out[i];
    to[to > out && to[-1] == '\n' ? -1 : 0] = 0;
    return out;
}

static void check(const char *answer, unsigned short width, const char *expected)
{
    for (size_t n = 1; n < 40; n += 3)
        assert_string_equal(shown(answer, n, width), expected);
}

static void test_words(void **state)
{
    (void)state;
    setenv("TERM", "xterm", 1);
    check("The quick brown fox jumps over the lazy dog.", 20, "The quick brown fox\njumps over the lazy\ndog.");
    check("one\n    two three four five six", 20, "one\n    two three four\nfive six");
    check("a word_that_is_longer_than_a_line b", 20, "a\nword_that_is_longer_than_a_line\nb");
    check("exactly twenty bytes", 20, "exactly twenty bytes");
    check("escape \033[31m red", 40, "escape [31m red"); /* an answer cannot control the terminal */
    check("The quick brown fox jumps", 0, "The quick brown fox jumps"); /* of unknown width */
}

static void test_wide_characters(void **state)
{
    (void)state;
    check("漢字漢字漢字漢字漢字漢字", 20, "漢字漢字漢字漢字漢字\n漢字");
    check("Grüße aus Köln an der Rhön", 20, "Grüße aus Köln an\nder Rhön");
}

static void test_code(void **state)
{
    (void)state;
    const char *answer = "Run `this` here:\n```c\nint a_long_line = 1 + 2 + 3;\n```\nand then some more text";
    setenv("TERM", "xterm", 1);
    check(answer, 20,
          "Run `this` here:\n\033[36m```c\nint a_long_line = 1 + 2 + 3;\n```\033[0m\nand then some more\ntext");
    check("```\nopen", 20, "\033[36m```\nopen\033[0m");
    const char *plain = "Run `this` here:\n```c\nint a_long_line = 1 + 2 + 3;\n```\nand then some more\ntext";
    setenv("NO_COLOR", "1", 1);
    check(answer, 20, plain);
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    check(answer, 20, plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_wide_characters),
        cmocka_unit_test(test_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
