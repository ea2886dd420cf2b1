/* The requests of a recording (--record FILE), as bodies of /v1/completions with token ids. Any thread. */
#ifndef QUIRE_TOOLS_REQUESTS_RECORDING_H
#define QUIRE_TOOLS_REQUESTS_RECORDING_H

#include "tools/cache/requests_file.h"

/* Returns whether a file begins like a recording; false if it cannot be read. Reads nothing from a pipe and returns
 * false. */
bool requests_are_recorded(const char *path);
/* Only requests with a text answer: no pins, vectors or background requests, and none that a body cannot express
 * (forbidden words as ids). A recording does not contain what the HTTP server handles alone: stop strings, salts, cache
 * names. A greedy request has no seed. Call requests_free() in every case. */
int requests_of_recording(const char *path, struct asked_requests *out, struct quire_error *err);

#endif
