/* trace.c: Writes what all ranks did in Chrome's trace format. */
#include "engine/trace.h"

#include "base/c_locale.h"
#include "base/file.h"
#include "base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[TRACE_N_KINDS] = {
    [TRACE_STEP] = "step",         [TRACE_SUM] = "sum",   [TRACE_SUM_BESIDE] = "sum",
    [TRACE_WAIT] = "wait for sum", [TRACE_SEND] = "send", [TRACE_RECEIVE] = "receive",
    [TRACE_GATHER] = "gather",     [TRACE_TELL] = "tell",
};

/* The rows of a rank. */
enum track { TRACK_STEPS, TRACK_BESIDE };
static const char *const track_names[] = {"steps", "sums beside"};

/* One slice; Chrome counts in microseconds. */
static void slice(FILE *f, int rank, enum track track, const char *name, const char *category,
                  uint64_t begin_ns, uint64_t end_ns, const char *unit, uint64_t size) {
    if (end_ns <= begin_ns)
        return;
    fprintf(f,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,"
            "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"%s\":%" PRIu64 "}}",
            name, category, rank, (int)track, (double)begin_ns * 1e-3,
            (double)(end_ns - begin_ns) * 1e-3, unit, size);
}

static const char *unit_of(uint32_t kind) {
    return kind == TRACE_STEP ? "tokens" : kind <= TRACE_WAIT ? "elements" : "bytes";
}

/* A step is noted when it ends, so its calls come before it: what lies between them is compute. */
static void write_rank(FILE *f, int rank, const struct trace_event *e, size_t n) {
    uint64_t free_since = 0; /* the end of the last step */
    size_t first = 0;        /* of the current step's calls */
    for (size_t i = 0; i < n; i++) {
        if (e[i].kind != TRACE_STEP)
            continue;
        uint64_t at = e[i].begin_ns;
        slice(f, rank, TRACK_STEPS, rank == 0 ? "between steps" : "waits for a step", "wait",
              free_since, at, "tokens", e[i].size);
        slice(f, rank, TRACK_STEPS, "step", "step", at, e[i].end_ns, "tokens", e[i].size);
        for (size_t k = first; k < i; k++) {
            const struct trace_event *call = &e[k];
            bool beside = call->kind == TRACE_SUM_BESIDE;
            if (!beside)
                slice(f, rank, TRACK_STEPS, "compute", "compute", at, call->begin_ns, "tokens",
                      e[i].size);
            slice(f, rank, beside ? TRACK_BESIDE : TRACK_STEPS,
                  call->kind < TRACE_N_KINDS ? kind_names[call->kind] : "?",
                  beside ? "beside" : "fabric", call->begin_ns, call->end_ns,
                  unit_of(call->kind), call->size);
            at = beside ? at : call->end_ns;
        }
        slice(f, rank, TRACK_STEPS, "compute", "compute", at, e[i].end_ns, "tokens", e[i].size);
        free_since = e[i].end_ns;
        first = i + 1;
    }
}

static void name_rows(FILE *f, int rank) {
    fprintf(
        f,
        "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
        rank == 0 ? "[" : ",\n", rank, rank);
    for (size_t i = 0; i < ARRAY_LEN(track_names); i++)
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%zu,"
                "\"args\":{\"name\":\"%s\"}}",
                rank, i, track_names[i]);
}

static bool write_all(FILE *f, const struct trace_event *events, const size_t *n, int n_ranks) {
    for (int r = 0; r < n_ranks; r++)
        name_rows(f, r);
    for (int r = 0; r < n_ranks; events += n[r++])
        write_rank(f, r, events, n[r]);
    fprintf(f, "]\n");
    return !ferror(f);
}

enum status trace_write(const char *path, const struct trace_event *events, const size_t *n,
                        int n_ranks, struct err *err) {
    struct file_new file;
    TRY(file_new_open(&file, path, err));
    locale_t callers = c_locale_begin();
    bool ok = write_all(file.f, events, n, n_ranks);
    c_locale_end(callers);
    if (!ok) {
        enum status st = file_new_failed(&file, errno, err);
        file_new_drop(&file);
        return st;
    }
    return file_new_finish(&file, false, err);
}
