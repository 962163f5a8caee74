/* page.h: the chat page that browsers get at "/": page.html. web/build.mjs makes it, and CMake
 * embeds it. */
#ifndef LOCKSTEP_API_PAGE_H
#define LOCKSTEP_API_PAGE_H

#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_bytes;

#endif
