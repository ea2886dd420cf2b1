/* GET /tokenizer_info: the model's tokenizer_config.json and chat template, as in vLLM. */
#include "server/front/front_internal.h"

#include <stdlib.h>

void tokenizer_info_start(struct served_model *m, struct http_exchange *x)
{
    char *text = NULL;
    size_t n = 0;
    struct api_error e;
    const int status = quire_text_about(m->config->text, &text, &n, &e.why);
    if (status != QUIRE_OK) {
        api_fail_status(&e, status, NULL);
        api_error_reply(x, &e);
        return;
    }
    http_reply(x, 200, "application/json", text, n);
    free(text);
}
