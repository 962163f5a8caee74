/* page.h: the chat page that browsers get at "/": page.html, made by web/build.mjs and embedded
 * by CMake. */
#ifndef LOCKSTEP_API_PAGE_H
#define LOCKSTEP_API_PAGE_H

#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_bytes;

#endif
