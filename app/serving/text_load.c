#include "app/serving/text_load.h"

#include <pthread.h>
#include <stdlib.h>

struct serving_text_load {
    pthread_t thread;
    const char *model_dir;
    struct quire_text *text;
    struct quire_error err;
    int status;
};

static void *load_text(void *context)
{
    struct serving_text_load *load = context;
    load->status = quire_text_open(load->model_dir, &load->text, &load->err);
    return NULL;
}

int serving_text_begin(const char *model_dir, struct serving_text_load **out, struct quire_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    (*out)->model_dir = model_dir;
    if (pthread_create(&(*out)->thread, NULL, load_text, *out) != 0) {
        free(*out);
        *out = NULL;
        return quire_fail(err, QUIRE_NO_MEMORY, "a thread for the tokenizer could not be started");
    }
    return QUIRE_OK;
}

int serving_text_join(struct serving_text_load *load, struct quire_text **out, struct quire_error *err)
{
    pthread_join(load->thread, NULL);
    int status = load->status;
    *out = load->text;
    if (status != QUIRE_OK && err)
        *err = load->err;
    free(load);
    return status;
}
