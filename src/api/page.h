/* page.h: the chat page that browsers get at "/", and the files below /page/ that it loads when an
 * answer needs them. web/build.mjs makes them, and CMake embeds them. They are static: they are
 * there while the model loads, too, and need no key. */
#ifndef LOCKSTEP_API_PAGE_H
#define LOCKSTEP_API_PAGE_H

#include "net/http.h"

struct page_file {
    const char *path;            /* "/" is the page */
    const char *tag;             /* for ETag; another one for other bytes */
    const unsigned char *zipped; /* by gzip */
    size_t n_zipped;
    const unsigned char *plain; /* NULL: there is none, since browsers know gzip */
    size_t n_plain;
};
extern const struct page_file page_files[]; /* embed-page.cmake */
extern const size_t n_page_files;

/* Whether the request asks for one of the files. Those who ask for "/" get the page only if they
 * accept HTML. */
bool page_is_asked(const struct http_request *r);
/* Answers it then. */
bool page_answer(struct http_request *r);
bool page_has(const char *path);

#endif
