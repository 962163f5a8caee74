/** @file lockstep.h
 * Runs one language model on several ranks, with the same bits on any number.
 *
 *     struct lockstep_options opt;
 *     lockstep_options_init(&opt);
 *     opt.model_path = "model.gguf";
 *     opt.n_ranks = 3;
 *     struct lockstep *ls;
 *     struct lockstep_error err;
 *     if (lockstep_open(&ls, &opt, &err) != LOCKSTEP_OK) { puts(err.text); return 1; }
 *     ... lockstep_generate(ls, ...) ...
 *     lockstep_close(ls);
 *
 * The caller's process is rank 0. The other ranks are processes that lockstep_open() starts from
 * the `lockstep` program (worker_path) and lockstep_close() ends. Compute threads belong to the
 * library.
 *
 * Rules
 *  1. Initialise structs that you fill with their _init function first. It stores their size. So a
 *     program works with a later library whose structs have more fields: these get their
 *     defaults. Fields that an earlier library does not know are refused unless they are zero.
 *     struct lockstep_message and structs that the library fills keep their size
 *     (docs/library.md).
 *  2. What you pass in is borrowed for the call, unless it says otherwise.
 *  3. One call at a time per struct lockstep; different ones are independent. Only
 *     lockstep_cancel() may come from any thread. A callback may call functions that compute
 *     nothing, except for lockstep_reset() and lockstep_close(). While a model computes,
 *     lockstep_generate() and lockstep_eval() of it are refused (LOCKSTEP_BAD_INPUT). During a
 *     step, and so in lockstep_eval()'s rows(), functions that ask its ranks (their info, traces)
 *     are refused too.
 *  4. On failure a function returns a status other than LOCKSTEP_OK, writes one sentence to err
 *     (which may be NULL) and leaves its outputs alone.
 *  5. After LOCKSTEP_PEER_LOST (a rank died) only lockstep_close() is useful, unless the model
 *     was opened with failover.
 *  6. All computation runs in the default floating-point environment (fenv.h), whatever the
 *     caller's is. So do the callbacks, which must not change it. The caller's locale changes
 *     neither what a model reads nor what is written to files, only sentences for people. The
 *     calling thread must have 512 KiB of stack left, since templates and schemas nest. With less
 *     than 256 KiB, another thread computes the steps and calls rows(). A child of fork() may open
 *     models, but not use those of its parent: such calls are refused (LOCKSTEP_BAD_INPUT), and
 *     lockstep_close() does nothing there.
 *  7. Calls block until they are done: opening for as long as loading takes, the others for the
 *     steps that they need. Callbacks come from the calling thread, during the call.
 *  8. Texts are UTF-8 unless it says otherwise; lengths count bytes; names that end in _s are
 *     seconds, in _ms milliseconds.
 */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What the libraries show; every other name of theirs is local. */
#if defined __GNUC__
#define LOCKSTEP_API __attribute__((visibility("default")))
#else
#define LOCKSTEP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** How a call ended. */
enum lockstep_status {
    LOCKSTEP_OK = 0,      /**< it did what it says */
    LOCKSTEP_AGAIN,       /**< not now: only from lockstep_open() (placed, below) */
    LOCKSTEP_BAD_INPUT,   /**< an argument, an option or a file that breaks the rules */
    LOCKSTEP_NOT_FOUND,   /**< no such model or file */
    LOCKSTEP_UNSUPPORTED, /**< well formed, but lockstep cannot do it */
    LOCKSTEP_NO_MEMORY,   /**< the system gives no more memory */
    LOCKSTEP_IO,          /**< the operating system refused: a file, a socket, a process */
    LOCKSTEP_TIMEOUT,     /**< a rank did not come to the group in time */
    LOCKSTEP_PEER_LOST,   /**< a rank is gone, or was silent for silence_ms */
    LOCKSTEP_REFUSED,     /**< another group's secret, or another version's protocol */
    LOCKSTEP_CANCELLED    /**< by lockstep_cancel(), or by a callback that returned false */
};

/** Which error it is, where a program may have to tell it from others of the same status. */
enum lockstep_error_code {
    LOCKSTEP_ERROR_NONE = 0,        /**< the status says enough */
    LOCKSTEP_ERROR_PROMPT_TOO_LONG, /**< the context does not hold the prompt */
    LOCKSTEP_ERROR_GRAMMAR_ENDLESS  /**< no text of finite length matches the grammar */
};

/** Why a call failed. Written only by a call that fails. This struct stays as it is. */
struct lockstep_error {
    char text[512]; /**< a sentence for people, in UTF-8 */
    int code;       /**< enum lockstep_error_code; programs ignore the ones they do not know */
};

/** The version of this library, "0.2.0". */
LOCKSTEP_API const char *lockstep_version(void);

struct lockstep; /* an open model */

/** Ranks of one model, at most. */
#define LOCKSTEP_MAX_RANKS 64

/** What to open, and how. Fields are added at the end; size says how many of them the caller
 * knows. */
struct lockstep_options {
    size_t size;            /**< of this struct; lockstep_options_init() sets it */
    const char *model_path; /**< GGUF file (the first part of a split one) or folder */
    /** the lockstep program; NULL: found by itself ($LOCKSTEP_WORKER, this process if it is
     * lockstep, then $PATH) */
    const char *worker_path;
    /** Default 1. Ranks of one machine share its cores, in whole NUMA domains if there are
     * several. Then the thread that opens the model runs in the first rank's domain until it
     * closes. */
    int n_ranks;
    /** Relative weights: of the ranks of a tensor group (n = its size), of the stages of a
     * pipeline (n = their number), or of all ranks (n = n_ranks). n_split = 0: equal, or by
     * measurements (parallel). */
    int n_split;
    double split[LOCKSTEP_MAX_RANKS]; /**< the weights, n_split of them */
    /** "auto", "tensor", "pipeline", or "tensorTxpipelineP" with T * P = n_ranks. NULL: auto. On
     * one machine auto is tensor. Several machines measure themselves and their wires before
     * they load, and use the layout that is predicted to be fastest (docs/links.md). If no split
     * is given, it follows from the same measurements. Never changes the bits. */
    const char *parallel;
    const char *link; /**< "auto", "shm", "tcp", "verbs", "ucx". NULL: auto */
    /** How a mixture of experts is split: "slice" (a part of each expert: balanced for any
     * routing), "whole" (some whole experts each), "auto", or "cpu" (slices on the ranks on
     * processors, all else on those on devices). NULL: auto. Never changes the bits. */
    const char *experts;
    int n_threads; /**< per rank; 0: the cores of its part of the machine (n_ranks) */
    int n_ctx;     /**< 0: the model's own, at most 4096 */
    int n_chunk;   /**< prompt tokens computed at once; 0: 512. Never changes the bits */
    /** How keys and values are kept: "f16", "f32", "q8_0" (half the memory of f16). NULL: f16 */
    const char *kv;
    /** The device that each rank computes on: "cpu", part of a name or a number that
     * `lockstep devices` shows, or "auto" (a graphics processor if there is one); one for all
     * ranks, or a list with commas of one for each. "NAME+cpu": prompts on this device, tokens on
     * the processor; "cpu+NAME": the other way; "NAME+auto": prompts there, tokens where they are
     * measured to be faster (docs/gpu.md). NULL: cpu. Never changes the bits. */
    const char *devices;
    /** Makes every link worse, to show the effect of a wire: "latency=300us,bandwidth=10Gbit"
     * (also jitter, loss, reorder, corrupt, stall, dead, lose, flip: docs/fabric.md). NULL: the
     * links as they are. */
    const char *emulate_link;
    int silence_ms; /**< a rank silent for this long is lost; 0: 3000 */
    /** A lost rank is not an error. The model is opened again on the remaining machines, the
     * cache is computed again, and the call continues with the same bits. Only if that fails
     * does the call end with LOCKSTEP_PEER_LOST. The next call tries again, and continues after
     * the tokens that had been fed. */
    bool failover;

    /* ---- several machines; all NULL and 0: every rank is started on this one ---------------- */

    /** "a,b,c": a rank on each host (a name may be repeated). This process is on the first, and
     * starts the others over ssh ($LOCKSTEP_SSH names another program). The same lockstep and
     * the same model file must be there at the same paths. "a:7000": the port of the first. */
    const char *hosts;
    /** The nodes there start the others instead (`lockstep node`, with this user's cluster key),
     * and look for the model among their own. "a,b,c:7343" names a port for c's node if it is
     * not the usual one. */
    bool by_nodes;
    /** Another program starts the ranks (torchrun, srun, mpirun). Each process gives the
     * "host:port" at which rank 0 listens, n_ranks, its own rank and the same secret text. Rank
     * 0 calls lockstep_open(), the others lockstep_follow(). */
    const char *rendezvous;
    int rank;           /**< this process's, 0 .. n_ranks - 1 (rendezvous) */
    const char *secret; /**< a text that all ranks know (rendezvous) */
    int n_local;        /**< ranks on this machine, which share its cores; 0: one */
    int local_rank;     /**< which of these this is, 0 .. n_local - 1 */
    /** MLX's JSON matrix of RDMA devices, [[null,"rdma_en5"],["rdma_en5",null]]; null if two
     * ranks have no cable. NULL: the first device with an active port to each rank. */
    const char *rdma_matrix;

    /** NULL: all of hosts compute. Otherwise, if parallel is "auto" and several machines were
     * measured, it is called before anything is loaded. It gets the set of hosts that give one
     * answer fastest (bit i for the i-th; always the first, perhaps all), and a sentence for
     * people. If it returns true, all of them compute anyway. If it returns false,
     * lockstep_open() ends with LOCKSTEP_AGAIN; call it again with other hosts. */
    bool (*placed)(void *user, uint64_t fastest, const char *why);
    void *placed_user; /**< the user of placed() */

    /** Loading progress, 0 to 1. May be NULL. */
    void (*progress)(void *user, double fraction);
    void *progress_user; /**< the user of progress() */
};
/** Sets the first size bytes of *opt to the defaults of so large a struct. For callers that are
 * not written in C; C and C++ call lockstep_options_init(). */
LOCKSTEP_API void lockstep_options_defaults(struct lockstep_options *opt, size_t size);
/** Sets *opt to the defaults. */
static inline void lockstep_options_init(struct lockstep_options *opt) {
    lockstep_options_defaults(opt, sizeof *opt);
}

/** Starts the other ranks and loads the model on all; *out is yours until lockstep_close(). It may
 * fail with any status, and leaves no rank behind then. What opt points to, callbacks included, is
 * not used after the call. */
LOCKSTEP_API enum lockstep_status lockstep_open(struct lockstep **out,
                                                const struct lockstep_options *opt,
                                                struct lockstep_error *err);
/** Ends the other ranks. NULL is fine. */
LOCKSTEP_API void lockstep_close(struct lockstep *ls);

/** Runs a rank other than 0 that another program started. It joins the group, computes, and
 * returns when rank 0 closes (LOCKSTEP_OK) or a rank is lost (LOCKSTEP_PEER_LOST). It uses these
 * fields of opt: rendezvous, rank, n_ranks, secret, link, emulate_link, silence_ms, rdma_matrix,
 * n_local, local_rank, n_threads and model_path (its own copy of the file; NULL: rank 0's path).
 * Rank 0 decides the rest. */
LOCKSTEP_API enum lockstep_status lockstep_follow(const struct lockstep_options *opt,
                                                  struct lockstep_error *err);

/** What was opened, and how it runs. */
struct lockstep_model_info {
    const char *architecture; /**< "llama" */
    const char *name;         /**< general.name, "" if the file has none */
    const char *type;         /**< of most of the weights' bytes: "q8_0" */
    const char *parallel;     /**< what runs: "one rank", "tensor3", "tensor2xpipeline2" */
    const char *placement; /**< what was measured for it, in a line for people; "": nothing */
    /** "avx512": rank 0's instruction set, or the name of its device, or what computes which steps
     */
    const char *isa;
    const char *sums;      /**< how ranks add up one token: "one-shot", "tree", ...; "none" */
    int n_vocab;           /**< logits of a position, a file's padding included */
    int n_ctx;             /**< positions of the context that was opened */
    int n_ctx_train;       /**< the model's own */
    int n_layers;          /**< of the model */
    int n_embd;            /**< its hidden size */
    int n_ranks;           /**< that compute */
    int n_threads;         /**< of rank 0 */
    uint64_t n_params;     /**< weights of the model */
    uint64_t weight_bytes; /**< of all tensors as in the file */
    uint64_t
        token_weight_bytes; /**< read to generate one token, all ranks together, as packed */
    uint64_t token_macs;    /**< multiply-adds of the weights for one token */
    bool has_chat_template; /**< the file brings its own */
    double load_s;          /**< from lockstep_open() on, until all ranks were ready */
    /** A step of device_from tokens or more, but fewer than device_until, is on rank 0's device,
     * any other one on its processor. 0, 0: it has no device. */
    int device_from;
    int device_until; /**< INT_MAX: there is no such end */
};
/** Borrowed until lockstep_close(); after a failover it says what runs then. */
LOCKSTEP_API const struct lockstep_model_info *lockstep_model_info(const struct lockstep *ls);

/** What a rank has and holds: begin and end are half open, bytes are those of this rank alone. */
struct lockstep_rank_info {
    int pid;               /**< on its machine */
    int layer_begin;       /**< the first of the layers of its pipeline stage */
    int layer_end;         /**< one behind the last */
    int head_begin;        /**< the first of the query heads */
    int head_end;          /**< one behind the last */
    int ffn_begin;         /**< the first of the FFN columns; 0, 0 if all layers have experts */
    int ffn_end;           /**< one behind the last */
    int expert_begin;      /**< the first of the experts that it has a part of */
    int expert_end;        /**< one behind the last */
    int expert_ffn_begin;  /**< the first of the columns of these experts that it has */
    int expert_ffn_end;    /**< one behind the last */
    int vocab_begin;       /**< the first of the rows of the output matrix */
    int vocab_end;         /**< one behind the last */
    uint64_t weight_bytes; /**< what it holds, packed */
    uint64_t replicated_bytes; /**< of these, what other ranks hold too (norms, biases) */
    uint64_t kv_bytes;         /**< its part of the KV cache, for n_ctx */
    uint64_t kv_window_bytes;  /**< of these, of layers with a sliding window */
    uint64_t buffer_bytes;     /**< step buffers */
    /** what the kernel says: the process's memory, mapped files left out */
    uint64_t resident_bytes;
    char link[24];        /**< to rank 0: "self", "shm", "emulated tcp" */
    char rdma_device[64]; /**< rank 0's that leads to it ("rdma_en5"); "": none does */
    char text[400];       /**< the above for people */
};
/** Asks all ranks. LOCKSTEP_BAD_INPUT: there is no such rank; LOCKSTEP_PEER_LOST. */
LOCKSTEP_API enum lockstep_status lockstep_rank_info(struct lockstep *ls, int rank,
                                                     struct lockstep_rank_info *out,
                                                     struct lockstep_error *err);

/* ---- text ------------------------------------------------------------------------------ */

/** The tokens of a text. Here and below *ids [*n_ids] and *text, which ends with a NUL, are
 * malloc'd: lockstep_free() them.
 *
 * text     any bytes, valid UTF-8 or not, less than 2 GiB (LOCKSTEP_BAD_INPUT)
 * add_bos  adds the beginning-of-text and end-of-text tokens that the model uses
 * special  lockstep_tokenize: special tokens in the text are meant as such, not as their letters;
 *          lockstep_detokenize: control tokens have their names in the text, not nothing
 * ids      LOCKSTEP_BAD_INPUT for one that is not in the vocabulary */
LOCKSTEP_API enum lockstep_status lockstep_tokenize(struct lockstep *ls, const char *text,
                                                    size_t len, bool add_bos, bool special,
                                                    int32_t **ids, size_t *n_ids,
                                                    struct lockstep_error *err);
/** Whether the text is too long. LOCKSTEP_BAD_INPUT if the context cannot hold the tokens of a
 * text of this many bytes, so that lockstep_generate() would refuse it. This is found without
 * tokenizing. LOCKSTEP_OK does not mean that the text fits. */
LOCKSTEP_API enum lockstep_status lockstep_check_text(struct lockstep *ls, const char *text,
                                                      size_t len, struct lockstep_error *err);
/** The text of ids; see lockstep_tokenize(). */
LOCKSTEP_API enum lockstep_status lockstep_detokenize(struct lockstep *ls, const int32_t *ids,
                                                      size_t n, bool special, char **text,
                                                      size_t *len, struct lockstep_error *err);
/** Frees what a function of this library has allocated for its caller. NULL is fine. */
LOCKSTEP_API void lockstep_free(void *p);

/** One message of a conversation. This struct stays as it is. */
struct lockstep_message {
    const char *role;    /**< "system", "user", "assistant" */
    const char *content; /**< its text */
};
/** The conversation as the model's chat template writes it, ready for an answer; a file without
 * a template gets a built-in one, chosen by its special tokens. *text is malloc'd and
 * NUL-terminated: lockstep_free() it. Tokenize it with special and without add_bos: the template
 * writes that token itself. LOCKSTEP_BAD_INPUT: a message without role or content, one that is not
 * UTF-8, or a conversation that the template refuses. */
LOCKSTEP_API enum lockstep_status lockstep_chat_prompt(struct lockstep *ls,
                                                       const struct lockstep_message *messages,
                                                       size_t n, char **text, size_t *len,
                                                       struct lockstep_error *err);

/* ---- generation ------------------------------------------------------------------------ */

/** How the next token is chosen from the logits. */
struct lockstep_sampling {
    size_t size;          /**< of this struct; lockstep_sampling_init() sets it */
    float temperature;    /**< 0 to 100; 0: greedy. Default 0.8 */
    int top_k;            /**< 0: off. Default 40 */
    float top_p;          /**< above 0 to 1; 1: off. Default 0.95 */
    float min_p;          /**< 0 to 1; 0: off. Default 0.05 */
    float repeat_penalty; /**< above 0 to 100; 1: off. Default 1.0 */
    int repeat_last_n;    /**< tokens looked back on, default 64 */
    uint64_t seed;        /**< the same seed gives the same text, on any number of ranks */
};
/** As lockstep_options_defaults(). */
LOCKSTEP_API void lockstep_sampling_defaults(struct lockstep_sampling *s, size_t size);
/** Sets *s to the defaults. */
static inline void lockstep_sampling_init(struct lockstep_sampling *s) {
    lockstep_sampling_defaults(s, sizeof *s);
}

/** What to generate. */
struct lockstep_request {
    size_t size;        /**< of this struct; lockstep_request_init() sets it */
    const int32_t *ids; /**< [n_ids] the prompt */
    size_t n_ids;       /**< 1 to n_ctx - 1: the answer needs room, too */
    /** At most this many new tokens; 0: not even the prompt is computed; -1: to the end of the
     * context. */
    int n_predict;
    bool ignore_end;                          /**< go on after an end token */
    const struct lockstep_sampling *sampling; /**< NULL: the defaults */
    /** The form of the answer as a grammar in GBNF, the notation of llama.cpp. The answer ends
     * when the form allows no more text, and may end when it is complete. NULL: any form. */
    const char *grammar;
    /** The same as a JSON schema (docs/schemas.md). At most one of the two is given. */
    const char *json_schema;
    /** Called for every new token with the text that became complete with it (may be empty;
     * never half a character; not NUL-terminated). Return false to stop. May be NULL. */
    bool (*on_token)(void *user, int32_t id, const char *text, size_t len);
    void *user; /**< of on_token() */
};
/** As lockstep_options_defaults(). */
LOCKSTEP_API void lockstep_request_defaults(struct lockstep_request *req, size_t size);
/** Sets *req to the defaults: an answer to the end of the context. */
static inline void lockstep_request_init(struct lockstep_request *req) {
    lockstep_request_defaults(req, sizeof *req);
}

/** What lockstep_generate() did. */
struct lockstep_result {
    size_t n_prompt;    /**< tokens of the prompt */
    size_t n_cached;    /**< of these, found in the cache from the last call */
    size_t n_generated; /**< tokens, an end token included */
    /** "end" (the model's), "length" (n_predict), "context" (it is full), "cancelled" (by
     * lockstep_cancel() or on_token) */
    const char *stop;
    double prompt_s;   /**< time to the first token */
    double generate_s; /**< from the first token to the last */
};

/** Computes the prompt, except for a prefix that the cache has from the last call, and then token
 * by token. result may be NULL. A cancelled call ends with LOCKSTEP_OK and the tokens so far.
 * LOCKSTEP_BAD_INPUT: an empty or too long prompt, an id that is not in the vocabulary, a setting
 * out of range, an invalid grammar or schema; LOCKSTEP_UNSUPPORTED: a schema that no grammar can
 * enforce, or a grammar with too many readings; LOCKSTEP_NO_MEMORY; LOCKSTEP_PEER_LOST. */
LOCKSTEP_API enum lockstep_status lockstep_generate(struct lockstep *ls,
                                                    const struct lockstep_request *req,
                                                    struct lockstep_result *result,
                                                    struct lockstep_error *err);

/** Feeds ids after the ids that have been fed since the last reset. rows(user, first_pos, n,
 * logits) gets the logits of every position, [n, n_vocab] f32, in order, chunk by chunk. It
 * returns false to stop (LOCKSTEP_CANCELLED); the ids after the rows that it got then count as
 * not fed. rows may be NULL. LOCKSTEP_BAD_INPUT, and nothing is fed: an id that is not in the
 * vocabulary, or more ids than fit the context. Ids that were fed before a call was cancelled
 * stay fed. */
LOCKSTEP_API enum lockstep_status
lockstep_eval(struct lockstep *ls, const int32_t *ids, size_t n,
              bool (*rows)(void *user, size_t first_pos, size_t n, const float *logits),
              void *user, struct lockstep_error *err);
/** Forgets the sequence (not the model). */
LOCKSTEP_API void lockstep_reset(struct lockstep *ls);

/** From any thread or a signal handler: the running call ends within one step, lockstep_eval()
 * with LOCKSTEP_CANCELLED, lockstep_generate() with LOCKSTEP_OK and stop "cancelled". If no
 * call runs, it does nothing and does not affect the next call. */
LOCKSTEP_API void lockstep_cancel(struct lockstep *ls);

/** Where rank 0's time went since these counters were last reset, or the model was opened. */
struct lockstep_times {
    double compute_s;            /**< in kernels and the barriers of its own threads */
    double fabric_s;             /**< in collectives: waiting for others and copying */
    uint64_t steps;              /**< steps done */
    uint64_t exchanges;          /**< collectives done */
    uint64_t device_submissions; /**< to rank 0's device: each is waited for */
    uint64_t device_recorded;    /**< of these, with commands that had to be recorded */
    uint64_t device_dispatches;  /**< kernels that ran there */
    uint64_t device_bus_bytes;   /**< of the host's memory that these read and wrote, if the
                                    device has memory of its own */
};
/** Fills *out, and sets the counters to zero if reset. */
LOCKSTEP_API void lockstep_times(struct lockstep *ls, struct lockstep_times *out, bool reset);

/** Begins a trace. Every rank notes from here on what it does when (2^18 events at most), until
 * lockstep_trace_end() writes it to a file in Chrome's trace format, which chrome://tracing and
 * ui.perfetto.dev show: for each rank its steps, in them computing and the calls between ranks.
 * Both ask all ranks: LOCKSTEP_NO_MEMORY, LOCKSTEP_PEER_LOST. lockstep_trace_end() also:
 * LOCKSTEP_BAD_INPUT without a path or a trace that was begun, LOCKSTEP_IO if the file cannot
 * be written. */
LOCKSTEP_API enum lockstep_status lockstep_trace_begin(struct lockstep *ls,
                                                       struct lockstep_error *err);
/** Ends the trace and writes it; see lockstep_trace_begin(). */
LOCKSTEP_API enum lockstep_status lockstep_trace_end(struct lockstep *ls, const char *path,
                                                     struct lockstep_error *err);

/** What this machine could do at most; see lockstep_roofs(). */
struct lockstep_roofs {
    double read_gbs; /**< GB/s */
    /** 10^9 operations (2 per multiply-add) per second, of the kind that the model's main weight
     * type computes with: int8 or f32 */
    double peak_gops;
    const char *peak_kind; /**< "int8", "f32" */
};
/** The roofs of this machine for the open model's ranks: n_ranks * n_threads threads of this
 * process read memory, and multiply, as fast as the best loop can; of ranks in several NUMA
 * domains those of the first, times their number. A single rank on a device has its device's. For
 * `lockstep bench`. Takes a second or so,
 * and up to 1 GiB of memory for that time. LOCKSTEP_NO_MEMORY, LOCKSTEP_PEER_LOST. */
LOCKSTEP_API enum lockstep_status
lockstep_roofs(struct lockstep *ls, struct lockstep_roofs *out, struct lockstep_error *err);

/** The entry point of a worker process: `lockstep worker` calls it; returns the exit status. */
LOCKSTEP_API int lockstep_worker_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
