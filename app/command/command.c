#include "app/command/command.h"

#include "base/encoding/utf8.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool command_begin(const struct cli_command *command, int argc, char **argv, int *code)
{
    struct quire_error err;
    enum cli_help help;
    *code = 0;
    if (cli_parse(command, argc, argv, &help, &err) != QUIRE_OK)
        *code = command_fail(2, err.text);
    else if (help != CLI_HELP_NONE)
        cli_print_help(command, help);
    else
        return true;
    return false;
}

int command_fail(int code, const char *text)
{
    if (quire_log_format() == QUIRE_LOG_AS_JSON)
        quire_log(QUIRE_LOG_ERROR, "quire", "%s", text);
    else
        fprintf(stderr, "quire: %s\n", text);
    return code;
}

int command_print_json(json_t *object)
{
    if (!object)
        return command_fail(1, "out of memory");
    bool ok = json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;
    json_decref(object);
    putchar('\n');
    return ok && fflush(stdout) == 0 ? 0 : command_fail(1, "the results cannot be written");
}

json_t *command_json_text(const char *text)
{
    char *valid = strdup(text);
    size_t n_left = strlen(text);
    for (char *p = valid; valid && n_left > 0;) {
        const size_t n = utf8_character((const uint8_t *)p, n_left);
        if (n == 0)
            *p = '?';
        p += n ? n : 1;
        n_left -= n ? n : 1;
    }
    json_t *made = valid ? json_string(valid) : NULL;
    free(valid);
    return made;
}
