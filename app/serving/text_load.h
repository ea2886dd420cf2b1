/* Opens the tokenizer in a separate thread, in parallel with the weights. Main thread. */
#ifndef QUIRE_APP_SERVING_TEXT_LOAD_H
#define QUIRE_APP_SERVING_TEXT_LOAD_H

#include "base/status.h"
#include "text/quire_text.h"

/* Each serving_text_begin() needs one serving_text_join(). */
struct serving_text_load;
int serving_text_begin(const char *model_dir, struct serving_text_load **out, struct quire_error *err);
int serving_text_join(struct serving_text_load *load, struct quire_text **out, struct quire_error *err);

#endif
