/* Which versions of TLS an HTTP server speaks: 1.2 and 1.3 (RFC 8996 forbids the older ones). The
 * client is GnuTLS', told which version to offer. */
#include "base/util.h"
#include "cluster/identity.h"
#include "net/http.h"

#include "dial.h"

#include <gnutls/gnutls.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void handle(void *user, struct http_request *r) {
    size_t len;
    const char *body = http_body(r, &len);
    (void)user;
    http_reply(r, 200, "text/plain", body, len);
}

static bool send_all(gnutls_session_t session, const char *data, size_t len) {
    for (ssize_t n; len > 0; data += n, len -= (size_t)n)
        if ((n = gnutls_record_send(session, data, len)) <= 0)
            return false;
    return true;
}

/* Whether all of the answer, `wanted` bytes at its end, comes over such a connection. */
static bool is_answered(const struct http_server *s, const char *priorities,
                        const char *request, size_t len, size_t wanted) {
    static char got[1 << 20];
    gnutls_certificate_credentials_t credentials;
    gnutls_session_t session;
    int fd = dial_port(http_port(s), 60);
    size_t n = 0;
    assert_int_equal(gnutls_certificate_allocate_credentials(&credentials), 0);
    assert_int_equal(gnutls_init(&session, GNUTLS_CLIENT), 0);
    assert_int_equal(gnutls_priority_set_direct(session, priorities, NULL), 0);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials);
    gnutls_transport_set_int(session, fd);
    int rc;
    do
        rc = gnutls_handshake(session);
    while (rc < 0 && !gnutls_error_is_fatal(rc));
    bool good = rc == 0 && send_all(session, request, len);
    for (ssize_t k = 1; good && k > 0; n += (size_t)MAX(k, 0))
        k = gnutls_record_recv(session, got + n, sizeof got - 1 - n);
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
    close(fd);
    got[n] = '\0';
    const char *body = strstr(got, "\r\n\r\n");
    return good && body != NULL && n - (size_t)(body + 4 - got) == wanted;
}

static struct http_server *serve(struct identity *id) {
    struct cluster_key key = {{1}};
    struct http_server *s = NULL;
    struct http_config cfg;
    struct err err = {.text = ""};
    assert_int_equal(identity_make(id, &key, &err), ST_OK);
    http_config_init(&cfg);
    cfg.handle = handle;
    cfg.tls_cert_pem = id->cert_pem;
    cfg.tls_key_pem = id->key_pem;
    if (http_open(&s, &cfg, &err) != ST_OK)
        fail_msg("%s", err.text);
    return s;
}

#define ASKS "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void old_versions_are_not_spoken(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool spoken;
    } versions[] = {{"TLS1.0", false}, {"TLS1.1", false}, {"TLS1.2", true}, {"TLS1.3", true}};
    struct identity id;
    struct http_server *s = serve(&id);
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        char priorities[64];
        snprintf(priorities, sizeof priorities, "NORMAL:-VERS-ALL:+VERS-%s", versions[i].name);
        if (is_answered(s, priorities, ASKS, strlen(ASKS), 0) != versions[i].spoken)
            fail_msg("%s is %s", versions[i].name, versions[i].spoken ? "refused" : "spoken");
    }
    http_close(s);
    identity_deinit(&id);
}

/* Larger than records, sockets and turns: what GnuTLS has read ahead is not forgotten. */
static void large_bodies_come_and_go(void **state) {
    (void)state;
    static char request[900000];
    struct identity id;
    struct http_server *s = serve(&id);
    memset(request, 'x', sizeof request);
    int n = sprintf(request,
                    "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    "Content-Length: %d\r\n\r\n",
                    800000);
    request[n] = 'x';
    for (int i = 0; i < 5; i++)
        assert_true(is_answered(s, "NORMAL", request, (size_t)n + 800000, 800000));
    http_close(s);
    identity_deinit(&id);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_versions_are_not_spoken),
        cmocka_unit_test(large_bodies_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
