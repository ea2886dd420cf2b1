/* The requests of a recording (--record FILE), as bodies of /v1/completions with token ids. Any thread. */
#ifndef QUIRE_TOOLS_REQUESTS_RECORDING_H
#define QUIRE_TOOLS_REQUESTS_RECORDING_H

#include "tools/cache/requests_file.h"

/* Does a file begin as a recording does? false also where it cannot be read; of a pipe nothing is taken, and it is none. */
bool requests_are_recorded(const char *path);
/* Those that were answered by text: not pins, vectors, background requests, nor what a body cannot say (words that are
 * forbidden as ids). What the HTTP server did with them alone is not in a recording: stop strings, salts, names of caches. A greedy
 * request has no seed. requests_free() in every case. */
int requests_of_recording(const char *path, struct asked_requests *out, struct quire_error *err);

#endif
