/* The served model's engine, in this process or elsewhere: connects it to the front end and reports when it is available
 * and when it is lost. Main thread, on the loop. */
#ifndef QUIRE_APP_SERVE_SERVE_UPSTREAM_H
#define QUIRE_APP_SERVE_SERVE_UPSTREAM_H

#include "app/serve/serve_state.h"

/* Call it after serve_open_front(). The engine becomes available later, on the loop; the first time it starts --warm. */
int serve_connect_engine(struct serve *s, struct quire_error *err);

#endif
