/* stream.c: a conversation with the model's chat template, whose answers stream to the terminal
 * and have the form of a grammar.
 *
 *     cc stream.c $(pkg-config --cflags --libs lockstep) -o stream
 *     ./stream model.gguf 'root ::= [A-Za-z ,]{10,80} "."' "What is a bit bucket?" "And a
 * kludge?" */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MESSAGES 16

/* The text of the answer so far. */
struct answer {
    char text[4096];
    size_t len;
};

/* Called for each token. False would end the answer. */
static bool stream(void *user, int32_t id, const char *text, size_t len) {
    struct answer *a = user;
    (void)id;
    if (len >= sizeof a->text - a->len)
        return false;
    memcpy(a->text + a->len, text, len);
    a->len += len;
    a->text[a->len] = '\0';
    return fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
}

/* Answers the conversation of n messages. The cache keeps what two prompts begin with alike. */
static enum lockstep_status reply(struct lockstep *ls, const struct lockstep_message *messages,
                                  size_t n, const char *grammar, struct answer *a,
                                  struct lockstep_error *err) {
    struct lockstep_request req;
    struct lockstep_sampling sampling;
    char *prompt = NULL;
    int32_t *ids = NULL;
    size_t len;
    lockstep_sampling_init(&sampling);
    sampling.seed = 1; /* the same answer each time, on any number of ranks */
    lockstep_request_init(&req);
    req.sampling = &sampling;
    req.grammar = grammar;
    req.n_predict = 200;
    req.on_token = stream;
    req.user = a;
    a->len = 0;

    enum lockstep_status st = lockstep_chat_prompt(ls, messages, n, &prompt, &len, err);
    if (st == LOCKSTEP_OK)
        st = lockstep_tokenize(ls, prompt, len, false, true, &ids, &req.n_ids, err);
    req.ids = ids;
    if (st == LOCKSTEP_OK)
        st = lockstep_generate(ls, &req, NULL, err);
    lockstep_free(prompt);
    lockstep_free(ids);
    return st;
}

int main(int argc, char **argv) {
    static struct answer answers[MAX_MESSAGES];
    struct lockstep_message messages[2 * MAX_MESSAGES];
    struct lockstep_options opt;
    struct lockstep_error err;
    struct lockstep *ls = NULL;
    size_t n = 0;
    if (argc < 4 || argc > 3 + MAX_MESSAGES)
        return fprintf(stderr, "usage: stream MODEL GRAMMAR QUESTION...\n"), 2;

    lockstep_options_init(&opt);
    opt.model_path = argv[1];
    enum lockstep_status st = lockstep_open(&ls, &opt, &err);
    for (int i = 3; i < argc && st == LOCKSTEP_OK; i++) {
        struct answer *a = &answers[i - 3];
        messages[n++] = (struct lockstep_message){"user", argv[i]};
        st = reply(ls, messages, n, argv[2], a, &err);
        messages[n++] = (struct lockstep_message){"assistant", a->text};
        puts("");
    }
    if (st != LOCKSTEP_OK)
        puts(err.text);
    lockstep_close(ls);
    return st == LOCKSTEP_OK ? 0 : 1;
}
