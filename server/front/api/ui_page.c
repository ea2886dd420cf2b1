#include "server/front/api/ui_page.h"

#include "server/http/http.h"

#include <string.h>

void ui_page_reply(struct http_exchange *x, const struct ui_page *page)
{
    const char *known = http_header(x, "if-none-match");
    http_add_header(x, "ETag", page->etag);
    http_add_header(x, "Cache-Control", "no-cache");
    http_add_header(x, "Content-Security-Policy", page->policy);
    http_add_header(x, "X-Content-Type-Options", "nosniff");
    http_add_header(x, "Referrer-Policy", "no-referrer");
    /* A list of tags, weak or strong: the tag is a hash, so a substring match is exact. */
    if (known && (strcmp(known, "*") == 0 || strstr(known, page->etag)))
        http_reply(x, 304, NULL, NULL, 0);
    else
        http_reply(x, 200, "text/html; charset=utf-8", page->html, page->n_bytes);
}
