/* GET /ui: a page for chat and monitoring. It holds no secret and so needs no key; the requests that it sends do. */
#include "server/front/front_internal.h"
#include "server/front/api/ui_page.h"

#include <string.h>

/* GET /: a browser that opens the server's address gets the page. */
void root_start(struct served_model *m, struct http_exchange *x)
{
    (void)m;
    http_add_header(x, "Location", "/ui");
    http_reply(x, 307, NULL, NULL, 0);
}

void ui_start(struct served_model *m, struct http_exchange *x)
{
    (void)m;
    const char *known = http_header(x, "if-none-match");
    http_add_header(x, "ETag", ui_page_etag);
    http_add_header(x, "Cache-Control", "no-cache");
    http_add_header(x, "Content-Security-Policy", ui_page_policy);
    http_add_header(x, "X-Content-Type-Options", "nosniff");
    http_add_header(x, "Referrer-Policy", "no-referrer");
    /* A list of tags, weak or strong: the tag is a hash, so a substring match is exact. */
    if (known && (strcmp(known, "*") == 0 || strstr(known, ui_page_etag)))
        http_reply(x, 304, NULL, NULL, 0);
    else
        http_reply(x, 200, "text/html; charset=utf-8", ui_page, ui_page_bytes);
}
