/* serve.h: shared by `lockstep serve` and `lockstep up`: the options for serving a model. */
#ifndef LOCKSTEP_COMMANDS_SERVE_H
#define LOCKSTEP_COMMANDS_SERVE_H

#include "cli/cli.h"

#include <jansson.h>

#define SERVE_KEYS_MAX 1024

/* What serve_options wrote, as far as both look at it. */
struct serve_args {
    const char *alias, *api_key, *api_key_file, *tls_cert, *tls_key, *cors;
    const char *log_requests; /* "text", "json"; NULL: none is logged */
    int port;
    bool insecure;
};
extern struct serve_args serve_args;
/* With session_options. */
extern const struct cli_option serve_options[];

/* Whether a deployment's words (cluster/deployment.h) are options that may be sent to a node:
 * none names a file, a program or another machine. ST_BAD_INPUT. */
enum status serve_check_words(const char *const *words, size_t n, struct err *err);

/* Writes one line on stderr for a request that is over: who, what, how much and how long, and never
 * the text. From any thread. */
struct http_record;
void serve_log_text(const struct http_record *r);
void serve_log_json(const struct http_record *r);

struct serve_keys {
    const char *list[SERVE_KEYS_MAX]; /* point into text, and argv */
    size_t n;
    char *text; /* the file's; owned */
};

/* Checks what the options say, for a server at `host`, and reads its keys. ST_BAD_INPUT,
 * ST_NOT_FOUND, ST_IO. */
enum status serve_check(struct serve_keys *keys, const char *host, struct err *err);
void serve_keys_deinit(struct serve_keys *keys);

#endif
