/* GET /ui: a page for chat and monitoring. */
#include "server/front/api/ui_page.h"
#include "server/front/front_internal.h"

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
    ui_page_reply(x, &chat_page);
}
