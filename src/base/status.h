/* status.h: how every part of lockstep reports errors.
 *
 * Three kinds of error:
 *   1. a bug of ours                      BUG_ON(cond): prints where, aborts, in release too
 *   2. the world says no (file, peer...)  an enum status plus a sentence in struct err
 *   3. not now                            ST_AGAIN: no sentence, never logged
 *
 * A program decides by the status or by the code beside the sentence, never by the sentence.
 * Sentences are written for people and may be reworded at any time (tests/lint checks this).
 *
 * Outputs are written only on success. Libraries never exit and never print. */
#ifndef LOCKSTEP_BASE_STATUS_H
#define LOCKSTEP_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

enum status {
    ST_OK = 0,
    ST_AGAIN,       /* not now: nothing is wrong, try later */
    ST_BAD_INPUT,   /* a file, flag or request that breaks its format's or our rules */
    ST_NOT_FOUND,   /* no such file, key, tensor, model */
    ST_UNSUPPORTED, /* well formed, but lockstep cannot do it */
    ST_NO_MEMORY,   /* memory, address space, a table is full */
    ST_IO,          /* the operating system refused: read, write, socket */
    ST_TIMEOUT,     /* a deadline passed; no peer is known to be dead */
    ST_PEER_LOST,   /* another rank is gone or silent: the group is over */
    ST_REFUSED,     /* wrong token, wrong group, wrong protocol version */
    ST_CANCELLED,   /* the caller (or the client) asked for it */
    ST_N
};

/* Which error it is, where a caller has to tell one from others of the same status. Add one for
 * each question that is asked. */
enum err_code {
    ERR_NONE = 0,            /* the status says enough */
    ERR_PROMPT_TOO_LONG,     /* the model's context does not hold the prompt */
    ERR_GRAMMAR_ENDLESS,     /* no text of finite length matches the grammar */
    ERR_MODEL_UNKNOWN,       /* a request names a model that is not served here */
    ERR_RESPONSE_UNKNOWN,    /* a request names an earlier response that is not stored */
    ERR_THREADS_UNSUPPORTED, /* a request wants the server to keep the conversation */
    ERR_N
};

/* A sentence that a user can act on, with the defect and its place. Owned by the caller,
 * usually on its stack; valid only after a call returned an error. */
struct err {
    char text[512];
    enum err_code code;
};

/* Writes the sentence (printf style; err may be NULL) with ERR_NONE and returns st. So a
 * failing function can end with `return err_set(err, ST_IO, "...")`. */
__attribute__((format(printf, 3, 4))) enum status err_set(struct err *err, enum status st,
                                                          const char *fmt, ...);
/* The same with a code. */
__attribute__((format(printf, 4, 5))) enum status
err_set_code(struct err *err, enum status st, enum err_code code, const char *fmt, ...);
void err_vset(struct err *err, enum err_code code, const char *fmt, va_list ap);

/* Puts a context in front of the sentence: "model.gguf: " + what it says. The code stays. Returns
 * st. */
__attribute__((format(printf, 3, 4))) enum status err_prefix(struct err *err, enum status st,
                                                             const char *fmt, ...);

/* "bad input", "peer lost"...: for logs and JSON; never NULL. */
const char *status_name(enum status st);

/* The process exit status that the CLI gives for st: 0 ok, 2 bad input/not found/unsupported,
 * 3 peer lost/timeout/refused, 1 anything else. */
int status_exit_code(enum status st);

_Noreturn void bug_at(const char *file, int line, const char *what);

#define BUG_ON(cond)                           \
    do {                                       \
        if (__builtin_expect(!!(cond), 0))     \
            bug_at(__FILE__, __LINE__, #cond); \
    } while (0)

/* Passes an error on: the sentence is already in err. */
#define TRY(call)                     \
    do {                              \
        enum status try_st_ = (call); \
        if (try_st_ != ST_OK)         \
            return try_st_;           \
    } while (0)

#endif
