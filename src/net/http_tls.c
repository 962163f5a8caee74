/* http_tls.c: TLS for the HTTP server, with GnuTLS. */
#include "net/http_tls.h"

#include "base/mem.h"

#include <gnutls/gnutls.h>
#include <string.h>

/* RFC 8996 forbids TLS 1.0 and 1.1. */
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct http_tls {
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
};

struct http_tls_session {
    gnutls_session_t session;
};

static gnutls_datum_t datum(const char *text) {
    return (gnutls_datum_t){.data = (unsigned char *)(uintptr_t)text,
                            .size = (unsigned)strlen(text)};
}

enum status http_tls_open(struct http_tls **out, const char *cert, const char *key,
                          struct err *err) {
    struct http_tls *t = mem_calloc(1, sizeof *t);
    gnutls_datum_t c = datum(cert), k = datum(key);
    int rc = t != NULL ? gnutls_certificate_allocate_credentials(&t->credentials)
                       : GNUTLS_E_MEMORY_ERROR;
    if (rc == 0)
        rc = gnutls_priority_init(&t->priorities, PRIORITIES, NULL);
    if (rc == 0)
        rc = gnutls_certificate_set_x509_key_mem(t->credentials, &c, &k, GNUTLS_X509_FMT_PEM);
    if (rc == 0) {
        *out = t;
        return ST_OK;
    }
    http_tls_close(t);
    return err_set(err, ST_IO,
                   "the HTTP server does not start: are certificate and key good PEM files "
                   "that belong together? (%s)",
                   gnutls_strerror(rc));
}

void http_tls_close(struct http_tls *t) {
    if (t == NULL)
        return;
    if (t->credentials != NULL)
        gnutls_certificate_free_credentials(t->credentials);
    if (t->priorities != NULL)
        gnutls_priority_deinit(t->priorities);
    mem_free(t);
}

struct http_tls_session *http_tls_session_open(struct http_tls *t, int fd) {
    static const char protocol[] = "http/1.1";
    const gnutls_datum_t alpn = datum(protocol);
    struct http_tls_session *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    if (gnutls_init(&s->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) != 0) {
        mem_free(s);
        return NULL;
    }
    gnutls_transport_set_int(s->session, fd);
    if (gnutls_priority_set(s->session, t->priorities) == 0 &&
        gnutls_credentials_set(s->session, GNUTLS_CRD_CERTIFICATE, t->credentials) == 0 &&
        gnutls_alpn_set_protocols(s->session, &alpn, 1, 0) == 0)
        return s;
    http_tls_session_close(s, false);
    return NULL;
}

void http_tls_session_close(struct http_tls_session *s, bool says_so) {
    if (says_so)
        (void)gnutls_bye(s->session, GNUTLS_SHUT_WR);
    gnutls_deinit(s->session);
    mem_free(s);
}

static bool is_again(ssize_t rc) {
    return rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED;
}

ssize_t http_tls_handshake(struct http_tls_session *s, bool *writes) {
    int rc;
    do
        rc = gnutls_handshake(s->session);
    while (rc < 0 && !is_again(rc) && !gnutls_error_is_fatal(rc)); /* a warning of the client */
    *writes = gnutls_record_get_direction(s->session) == 1;
    return rc == 0 ? 1 : is_again(rc) ? HTTP_TLS_AGAIN : -1;
}

ssize_t http_tls_recv(struct http_tls_session *s, void *buf, size_t size) {
    ssize_t n = gnutls_record_recv(s->session, buf, size);
    if (n >= 0)
        return n;
    /* Many clients close without a word; whether all has come is known by HTTP. */
    return is_again(n) ? HTTP_TLS_AGAIN : n == GNUTLS_E_PREMATURE_TERMINATION ? 0 : -1;
}

ssize_t http_tls_send(struct http_tls_session *s, const void *data, size_t len) {
    ssize_t n = gnutls_record_send(s->session, data, len);
    return n >= 0 ? n : is_again(n) ? HTTP_TLS_AGAIN : -1;
}

bool http_tls_has_more(const struct http_tls_session *s) {
    return gnutls_record_check_pending(s->session) > 0;
}
