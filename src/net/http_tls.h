/* http_tls.h: TLS 1.2 and 1.3 for the HTTP server, with GnuTLS: its certificate, and the
 * session of each connection. Sockets are non-blocking, and nothing here blocks.
 *
 * Sizes are returned as recv() and send() do; HTTP_TLS_AGAIN: not now. */
#ifndef LOCKSTEP_NET_HTTP_TLS_H
#define LOCKSTEP_NET_HTTP_TLS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct http_tls;
struct http_tls_session;

#define HTTP_TLS_AGAIN ((ssize_t)-2)

/* cert, key: texts, PEM. ST_IO: they are invalid, or do not belong together. */
enum status http_tls_open(struct http_tls **out, const char *cert, const char *key,
                          struct err *err);
void http_tls_close(struct http_tls *t); /* after all sessions; NULL is fine */

/* fd stays the caller's. NULL: no memory. */
struct http_tls_session *http_tls_session_open(struct http_tls *t, int fd);
/* says_so: tells the client that nothing more comes, as far as the socket takes it at once. */
void http_tls_session_close(struct http_tls_session *s, bool says_so);

/* 1: done; HTTP_TLS_AGAIN: *writes says what the socket is waited for; -1: it failed. */
ssize_t http_tls_handshake(struct http_tls_session *s, bool *writes);
ssize_t http_tls_recv(struct http_tls_session *s, void *buf, size_t size);
/* After HTTP_TLS_AGAIN the next call has the same bytes. */
ssize_t http_tls_send(struct http_tls_session *s, const void *data, size_t len);
/* Bytes that are decrypted already, which poll() on the socket does not show. */
bool http_tls_has_more(const struct http_tls_session *s);

#endif
