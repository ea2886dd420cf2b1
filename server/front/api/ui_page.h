/* The page at /ui, as server/front/api/ui/embed.cmake makes it from the files in server/front/ui. */
#ifndef QUIRE_FRONT_UI_PAGE_H
#define QUIRE_FRONT_UI_PAGE_H

#include <stddef.h>

extern const unsigned char ui_page[]; /* HTML */
extern const size_t ui_page_bytes;
extern const char ui_page_policy[]; /* its Content-Security-Policy */
extern const char ui_page_etag[];   /* quoted */

#endif
