/* Names of models on the hub, checked. No state; any thread while no thread calls setenv(). */
#ifndef QUIRE_APP_MODELS_NAME_H
#define QUIRE_APP_MODELS_NAME_H

#include "base/status.h"

#include <stdbool.h>

#define HUB_NAME_BYTES 97       /* huggingface_hub's limit of 96, and a NUL */
#define HUB_REVISION_BYTES 129
#define HUB_COMMIT_BYTES 41
#define HUB_FILE_NAME_BYTES 1025

#define HUB_QUANT_BYTES 33

/* ORG/NAME or NAME, or an address on the hub (hub_url.h), checked: letters, digits, '-', '_' and '.', never "..", "--" or one of "-." at an end. */
struct hub_name {
    char text[HUB_NAME_BYTES];
    char quant[HUB_QUANT_BYTES]; /* of NAME:QUANT, otherwise "": selects a GGUF file of the repository */
    char revision[HUB_REVISION_BYTES]; /* a branch, a tag or a commit; default "main", or from NAME@REVISION */
};
int hub_name_parse(const char *given, struct hub_name *out, struct quire_error *err);

/* Returns whether text is 40 lower-case hex digits. */
bool hub_is_commit(const char *text);

/* Returns whether a repository's file may have this name. False if it could leave its directory or forge a line on a
 * terminal. */
bool hub_file_name_ok(const char *name);

/* "ORG/NAME" or "ORG/NAME:QUANT@REVISION", as a command line takes it. Returns out. */
#define HUB_TYPED_BYTES (HUB_NAME_BYTES + HUB_QUANT_BYTES + HUB_REVISION_BYTES)
const char *hub_name_typed(const struct hub_name *name, char out[HUB_TYPED_BYTES]);

#endif
