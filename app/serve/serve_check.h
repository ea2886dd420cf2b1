/* Checks of several options of quire serve together, and of values that need a parser. Pure; main thread. */
#ifndef QUIRE_APP_SERVE_SERVE_CHECK_H
#define QUIRE_APP_SERVE_SERVE_CHECK_H

#include "app/serve/serve_flags.h"

/* of_engine: the first option on the command line that only an in-process engine has, or NULL. Also writes the values
 * that are parsed here to their places. QUIRE_INVALID names the option. */
int serve_check(struct serve_flags *f, const char *of_engine, struct quire_error *err);

/* The checks of the listener and its keys alone: those of a gateway. */
int serve_check_http(struct serve_flags *f, struct quire_error *err);

#endif
