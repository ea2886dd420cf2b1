/* Sessions of a client: requests that follow each other with the same beginning. Any thread on its own body. */
#ifndef QUIRE_FRONT_SESSION_H
#define QUIRE_FRONT_SESSION_H

#include "request/spec.h"
#include "text/quire_json.h"

/* Marks the request's blocks, so that they stay in the prefix cache for five minutes as those of a cached answer, if the
 * body names a session: `name` is a string that is not empty. The next request of the session extends the blocks and
 * their time. A longer time is not changed. */
void session_keep(struct request_spec *spec, struct quire_value name);
/* The same for `seconds`; 0 changes nothing. */
void session_keep_for(struct request_spec *spec, uint32_t seconds);

#endif
