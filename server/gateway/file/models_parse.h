/* A models file from memory: for models_file_read(), tests and fuzzing. Any thread. */
#ifndef QUIRE_GATEWAY_MODELS_PARSE_H
#define QUIRE_GATEWAY_MODELS_PARSE_H

#include "server/gateway/file/models_file.h"

/* path: the file's name in messages. Reads key files and the environment, as models_file_read() does. */
int models_file_parse(const char *text, size_t n_bytes, const char *path, const struct gateway_config **out,
                      struct quire_error *err);

#endif
