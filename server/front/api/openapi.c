/* GET /openapi.json: openapi.json, which holds no secret and so needs no key. */
#include "server/front/front_internal.h"

extern const unsigned char openapi_text[]; /* as embed.cmake makes it */
extern const size_t openapi_text_bytes;

void openapi_start(struct served_model *m, struct http_exchange *x)
{
    (void)m;
    http_reply(x, 200, "application/json", (const char *)openapi_text, openapi_text_bytes);
}
