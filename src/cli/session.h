/* session.h: shared by run, chat, eval and bench: the options for opening and splitting a
 * model, opening it (with include/lockstep/lockstep.h alone), and printing what it is. */
#ifndef LOCKSTEP_CLI_SESSION_H
#define LOCKSTEP_CLI_SESSION_H

#include "cli/cli.h"
#include "lockstep/lockstep.h"

/* What the options below wrote. A process runs one command, so there is one of it. */
struct session_args {
    const char *model;
    const char *word; /* which the command line has for it */
    bool anywhere;    /* the model need not be on this machine: model is the word itself */
    int n_ranks;      /* 0: as --split or --parallel say, else 1 */
    struct cli_list split;
    const char *parallel, *link, *emulate, *experts, *kv, *devices;
    const char *hosts, *nodes, *weights, *join, *secret_file, *rdma_matrix;
    /* a file that rank 0 will write, named by the command: known to be writable when the model
     * opens */
    const char *output;
    int rank; /* -1: as the launcher says, else 0 */
    int n_threads, n_ctx, n_chunk, silence_ms;
    bool failover;
    bool json, quiet;
};
extern struct session_args session_args;

/* MODEL and the options of ranks, links, threads, context; the first three are parts of it. */
extern const struct cli_option session_model_options[], session_split_options[],
    session_context_options[];
extern const struct cli_option session_how_options[]; /* all but MODEL */
extern const struct cli_option session_options[];
/* Whether one of session_how_options was given. */
bool session_says_how(void);

/* What sampling options wrote; sampling_defaults() first. */
extern struct lockstep_sampling sampling_args;
extern const struct cli_option sampling_options[];
void sampling_defaults(void);

/* What the options ask of lockstep_open(); n_ctx_default stands for an absent --ctx. */
struct lockstep_options session_lockstep_options(int n_ctx_default);

/* Where the ranks are: completes *opt from --nodes, --hosts, --join, --rank and the launcher's
 * environment. CLI_GO_ON: this process leads (rank 0). Otherwise the exit status of the error
 * (already printed), or of a rank that another process leads; the call then runs that rank's
 * whole life. */
int session_place(struct lockstep_options *opt);

/* While a model is opened with *opt: shows the progress on stderr if that is a terminal, unless
 * quiet. */
void session_progress_begin(struct lockstep_options *opt);
void session_progress_end(void);

/* session_place(), then opens session_args.model with progress on a terminal. n_ctx_default
 * stands for an absent --ctx (0: the library's choice). CLI_GO_ON, or the exit status (the
 * sentence is said). From here on Ctrl-C cancels what runs. */
int session_open(struct lockstep **out, int n_ctx_default);
void session_close(struct lockstep *ls);

/* Before long work whose result goes to that file (NULL: fine): checks that it can be written
 * and is not the model. CLI_GO_ON, or the exit status. session_place() does so for
 * session_args.output. */
int session_check_output(const char *path);

/* Ends a failed call: says err, returns the exit status. */
int session_fail(enum lockstep_status st, const struct lockstep_error *err);

/* The model and what each rank holds: on stderr, unless --quiet; and for --json. */
int session_say(struct lockstep *ls);
json_t *session_json(struct lockstep *ls);

/* lockstep_tokenize() with special tokens, of a prompt: one that cannot fit is refused at once. */
enum lockstep_status session_tokenize(struct lockstep *ls, const char *prompt, size_t len,
                                      bool add_bos, int32_t **ids, size_t *n_ids,
                                      struct lockstep_error *err);

#define SESSION_RUNS_MAX 101
/* n per second, 0 if no time passed. */
double session_rate(double n, double seconds);
/* The tokens that result.generate_s was spent on: all but the first. */
double session_generated(const struct lockstep_result *r);

#endif
