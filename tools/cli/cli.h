/* Command lines from tables: names, aliases, defaults and help text in one place.
 *
 * "--name value" and "--name=value"; underscores count as dashes, so that vLLM's --max_model_len works. An
 * unknown option says what it is called here, or names the nearest known one. Main thread only; every string points into argv or is static.
 */
#ifndef QUIRE_TOOLS_CLI_H
#define QUIRE_TOOLS_CLI_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_kind {
    CLI_STRING, /* const char ** */
    CLI_LIST,   /* struct cli_list *: may be repeated, and takes several values after one name */
    CLI_U32,    /* uint32_t * */
    CLI_U64,    /* uint64_t * */
    CLI_BYTES,  /* uint64_t *: 1048576, 512M, 4GiB, 1.5G */
    CLI_F64,    /* double * */
    CLI_FLAG,   /* bool *: --name sets, --no-name clears */
    CLI_PARSED, /* whatever `parse` makes of the text */
    CLI_GROUP,  /* a heading in the help; target is NULL */
};

#define CLI_MAX_LIST 64
struct cli_list {
    const char *items[CLI_MAX_LIST];
    size_t n;
};

struct cli_option {
    const char *names; /* "max-num-seqs", or "port,p": the first is shown; all are accepted */
    enum cli_kind kind;
    void *target;
    bool *given;       /* set when the option was on the command line; may be NULL */
    double min, max;   /* of numbers; both 0 = no bound but the type's, max 0 = none above min */
    const char *value; /* "N", "PATH": shown in the help */
    const char *help;
    int (*parse)(const char *text, void *target, struct quire_error *err); /* of CLI_PARSED; the option's name is put
                                                                              before its message */
};

/* An option that other engines have and the command has not. */
struct cli_foreign {
    const char *names;   /* as in cli_option */
    const char *accepts; /* NULL: refused. "": a flag that asks for what is so anyway. "1,auto": values that do */
    const char *says;    /* why, or what to write instead: "here --max-model-len" */
};

struct cli_command {
    const char *name;
    const char *usage;       /* "quire serve MODEL [options]" */
    const char *about;       /* paragraphs before the options */
    const char *examples;    /* after them */
    const struct cli_option *options; /* ends with names = NULL */
    const char **positionals[4];      /* ends with NULL; those after the first may stay NULL */
    const char *first_names;          /* NULL, or options that may stand for the first of them: "model,m" */
    const struct cli_foreign *foreign; /* NULL; or ends with names = NULL. One that is taken is logged */
};

/* *help: --help was given; everything else is then unset. */
int cli_parse(const struct cli_command *command, int argc, char **argv, bool *help, struct quire_error *err);
void cli_print_help(const struct cli_command *command);

/* Before cli_parse(): each of rows[n] that notes nowhere whether it was given does so in given[n]. */
void cli_note_given(struct cli_option *rows, size_t n, bool *given);
/* After it: the name of the first of rows[n] that was given, NULL where none was. */
const char *cli_first_given(const struct cli_option *rows, size_t n);

/* Of a command line that cli_parse() has taken, the arguments of rows[n], which are among the command's, with their values:
 * at most argc of them to out. */
size_t cli_pick(const struct cli_command *command, int argc, char **argv, const struct cli_option *rows, size_t n,
                char **out);

/* "512M" → bytes. */
int cli_parse_bytes(const char *text, uint64_t *out);

#endif
