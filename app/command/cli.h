/* Command lines from tables: names, aliases, defaults and help texts in one place.
 *
 * Accepts "--name value" and "--name=value". Underscores count as dashes, so vLLM's --max_model_len works. The error
 * for an unknown option names Quire's option for it, or the closest known one.
 * Main thread only. Every string points into argv or is static; nothing is freed.
 */
#ifndef QUIRE_APP_COMMAND_CLI_H
#define QUIRE_APP_COMMAND_CLI_H

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
    CLI_PARSED, /* `parse` writes the target */
    CLI_GROUP,  /* a heading in the help; target is NULL */
};

/* The help that the command line requests. */
enum cli_help {
    CLI_HELP_NONE,   /* no --help on the command line */
    CLI_HELP_COMMON, /* --help: the common options, if the command has more than CLI_SHORT_HELP_ABOVE */
    CLI_HELP_ALL,    /* --help all, --help=all */
};

/* Commands with more options than this print only their common ones for --help. */
#define CLI_SHORT_HELP_ABOVE 30

#define CLI_MAX_LIST 64
struct cli_list {
    const char *items[CLI_MAX_LIST];
    size_t n;
};

struct cli_option {
    const char *names; /* "max-num-seqs", or "port,p": the help shows the first; all are accepted */
    enum cli_kind kind;
    void *target;
    bool *given;       /* set to true if the option is on the command line; may be NULL */
    double min, max;   /* bounds of a number; both 0: only the type's bounds; max 0: no upper bound */
    const char *value; /* "N", "PATH": shown in the help */
    const char *help;  /* its first sentence is the short help */
    bool common;       /* shown by the short help */
    /* For CLI_PARSED. The option's name is put before its error message. */
    int (*parse)(const char *text, void *target, struct quire_error *err);
};

/* An option of other engines that the command does not have. */
struct cli_foreign {
    const char *names;   /* as in cli_option */
    const char *
        accepts; /* NULL: always an error. "": a flag that changes nothing. "1,auto": values that change nothing. ",on":
                     a flag that changes nothing, also with one of these values */
    const char *says; /* the reason, or what to write instead: "use --max-model-len" */
};

struct cli_command {
    const char *name;
    const char *usage; /* "quire serve MODEL [options]" */
    const char *about; /* paragraphs before the options */
    const char *examples; /* after the options: "examples:" and one per line; the short help shows the first */
    const struct cli_option *options; /* ends with names = NULL */
    const char **positionals[4]; /* ends with NULL; those after the first may stay NULL */
    struct cli_list *arguments; /* takes all arguments without a name, instead of positionals; NULL: positionals does */
    const char *first_names; /* options that may replace the first positional: "model,m"; NULL: no such option */
    const struct cli_foreign *foreign; /* ends with names = NULL; an accepted one is logged. May be NULL */
};

/* Sets the targets of the options. If *help is not CLI_HELP_NONE, nothing else is set. Errors: QUIRE_INVALID with a
 * message that names the option. */
int cli_parse(const struct cli_command *command, int argc, char **argv, enum cli_help *help, struct quire_error *err);
void cli_print_help(const struct cli_command *command, enum cli_help help);

/* Call before cli_parse(). Each of rows[n] without `given` reports in given[n]. */
void cli_note_given(struct cli_option *rows, size_t n, bool *given);
/* Call after cli_parse(). Returns the names of the first of rows[n] on the command line, or NULL. */
const char *cli_first_given(const struct cli_option *rows, size_t n);

/* Copies to out the arguments of rows[n], with their values, from a command line that cli_parse() accepted. The rows
 * belong to the command. Returns the number of arguments, at most argc. */
size_t cli_pick(const struct cli_command *command, int argc, char **argv, const struct cli_option *rows, size_t n,
                char **out);

/* Reads a size such as "512M" as bytes. */
int cli_parse_bytes(const char *text, uint64_t *out);

#endif
