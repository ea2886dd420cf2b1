/* Opens the files of the served model: the tokenizer and, if the engine is in this process, the weights. Main thread. */
#ifndef QUIRE_APP_SERVE_SERVE_MODELS_H
#define QUIRE_APP_SERVE_SERVE_MODELS_H

#include "app/serve/serve_state.h"

/* Sets s->identity, s->text and s->engine, and *sampling from the checkpoint. */
int serve_open_model(struct serve *s, struct sampling_defaults *sampling, struct quire_error *err);

#endif
