/* Opens the front end and adds the models that it serves, with the companion model of --embedding-model. Main thread. */
#ifndef QUIRE_APP_SERVE_SERVE_FRONT_H
#define QUIRE_APP_SERVE_SERVE_FRONT_H

#include "app/serve/serve_state.h"

/* Sets s->front, s->served and s->beside. sampling: from the checkpoint. */
int serve_open_front(struct serve *s, const struct sampling_defaults *sampling, struct quire_error *err);

#endif
