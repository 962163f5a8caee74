/* generate.c: the library in one page. Opens a model on several ranks, asks it, and prints the
 * answer.
 *
 *     cc generate.c $(pkg-config --cflags --libs lockstep) -o generate
 *     ./generate model.gguf 2 "What is a bit bucket?" */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print(void *user, int32_t id, const char *text, size_t len) {
    (void)user;
    (void)id;
    return fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    struct lockstep_options opt;
    struct lockstep_request req;
    struct lockstep_sampling greedy;
    struct lockstep_error err;
    struct lockstep *ls = NULL;
    char *prompt = NULL;
    int32_t *ids = NULL;
    size_t len;
    if (argc != 4)
        return fprintf(stderr, "usage: generate MODEL RANKS QUESTION\n"), 2;

    lockstep_options_init(&opt);
    opt.model_path = argv[1];
    opt.n_ranks = atoi(argv[2]);
    lockstep_sampling_init(&greedy);
    greedy.temperature = 0;
    lockstep_request_init(&req);
    req.n_predict = 100;
    req.sampling = &greedy;
    req.on_token = print;

    const struct lockstep_message question = {"user", argv[3]};
    enum lockstep_status st = lockstep_open(&ls, &opt, &err);
    if (st == LOCKSTEP_OK)
        st = lockstep_chat_prompt(ls, &question, 1, &prompt, &len, &err);
    if (st == LOCKSTEP_OK)
        st = lockstep_tokenize(ls, prompt, len, false, true, &ids, &req.n_ids, &err);
    req.ids = ids;
    if (st == LOCKSTEP_OK)
        st = lockstep_generate(ls, &req, NULL, &err);
    puts(st == LOCKSTEP_OK ? "" : err.text);
    lockstep_free(prompt);
    lockstep_free(ids);
    lockstep_close(ls);
    return st == LOCKSTEP_OK ? 0 : 1;
}
