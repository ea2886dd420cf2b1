/* Describes a model for lists. Main thread. */
#ifndef QUIRE_APP_SERVING_ABOUT_H
#define QUIRE_APP_SERVING_ABOUT_H

struct model_about;
struct model_config;

/* path: a directory of a checkpoint or a GGUF file. A file that cannot be read counts as empty. The parameters
 * and the engine's memory are not filled in. */
void serving_about(struct model_about *about, const char *path, const struct model_config *config);

#endif
