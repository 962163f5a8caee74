/* weights.c: loads a share of the weights, and checks that a file has what its model needs.
 * weights_collect.c lists the slices, weights_fill.c packs them. */
#include "weights/weights.h"

#include "base/exact.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/rows.h"
#include "weights/weights_loader.h"

#include <stdlib.h>

enum status weights_load(struct weights *out, const struct gguf *g, const struct hparams *hp,
                         const struct share *share, const struct file_source *from,
                         size_t piece_most, struct pool *pool, void (*progress)(void *, double),
                         void *user, struct err *err) {
    struct weights w = {.n_layers = share->layer_end - share->layer_begin,
                        .matrices.most = piece_most,
                        .others.most = piece_most};
    struct weights_loader ld = {.g = g,
                                .hp = hp,
                                .share = share,
                                .w = &w,
                                .from = from,
                                .failing = PTHREAD_MUTEX_INITIALIZER,
                                .progress = progress,
                                .user = user};
    enum status st = ST_OK;
    w.layers = mem_calloc(w.n_layers, sizeof *w.layers);
    if (w.layers == NULL)
        st = weights_no_memory(&ld, err);
    if (st == ST_OK)
        st = weights_collect(&ld, err);
    if (st == ST_OK)
        st = weights_fill(&ld, pool, err);
    if (st == ST_OK) {
        w.block = ld.block;
        w.block_bytes = ld.block_bytes;
        *out = w;
    } else {
        if (ld.block != NULL)
            mem_huge_free(ld.block, ld.block_bytes);
        weights_free(&w);
    }
    pthread_mutex_destroy(&ld.failing);
    mem_free(ld.row_bufs);
    mem_free(ld.slices);
    mem_free(ld.vecs);
    mem_free(ld.tables);
    return st;
}

void weights_free(struct weights *w) {
    for (size_t i = 0; i < w->n_owned; i++)
        mem_free(w->owned[i]);
    mem_free(w->owned);
    mem_free(w->layers);
    pieces_free(&w->matrices);
    pieces_free(&w->others);
    if (w->block != NULL)
        mem_huge_free(w->block, w->block_bytes);
    struct rows_here *here[] = {&w->embd_here, &w->input_here};
    for (size_t i = 0; i < ARRAY_LEN(here); i++)
        if (here[i]->bytes != NULL)
            mem_huge_free(here[i]->bytes, (size_t)here[i]->t.size_bytes);
    *w = (struct weights){0};
}

void weights_embed_row(const struct weights *w, int32_t id, float *out) {
    BUG_ON(id < 0 || (uint64_t)id >= w->embd->dims[1]);
    tensor_row_f32(w->embd_here.bytes != NULL ? &w->embd_here.t : w->embd, (uint64_t)id, 0,
                   w->embd->dims[0], out);
    exact_tidy_all(out, w->embd->dims[0]);
}

const float *weights_input_row(const struct weights *w, int32_t id, uint32_t begin, uint32_t n,
                               float *buf) {
    const struct gguf_tensor *t =
        w->input_here.bytes != NULL ? &w->input_here.t : w->input_embd;
    const uint64_t block = qtype_info(t->type)->block_values, first = begin / block * block;
    const uint64_t end = MIN(div_up(begin + (uint64_t)n, block) * block, t->dims[0]);
    BUG_ON(id < 0 || (uint64_t)id >= t->dims[1]);
    tensor_row_f32(t, (uint64_t)id, first, end - first, buf);
    exact_tidy_all(buf, end - first);
    return buf + (begin - first);
}

static enum status describe(struct weights *out, const struct gguf *g, const struct hparams *hp,
                            const struct share *share, bool *wanted, struct err *err) {
    struct weights w = {.n_layers = share->layer_end - share->layer_begin};
    struct weights_loader ld = {.g = g, .hp = hp, .share = share, .w = &w, .wanted = wanted};
    w.layers = mem_calloc(w.n_layers, sizeof *w.layers);
    enum status st = w.layers == NULL ? weights_no_memory(&ld, err) : weights_collect(&ld, err);
    if (st == ST_OK)
        *out = w;
    else
        weights_free(&w);
    mem_free(ld.slices);
    mem_free(ld.vecs);
    mem_free(ld.tables);
    return st;
}

enum status weights_describe(struct weights *out, const struct gguf *g,
                             const struct hparams *hp, const struct share *share,
                             struct err *err) {
    return describe(out, g, hp, share, NULL, err);
}

/* Whether the model would be another one without tensor t, which nothing reads. */
static bool is_of_model(const struct gguf_tensor *t, const struct hparams *hp) {
    /* What is computed from the keys, another form of attn_k_b and attn_v_b, and scales for
     * engines that quantize NVFP4's activations. */
    static const char *const no_loss[] = {"attn_rot_embd.weight", "rope_freqs.weight",
                                          "attn_kv_b.weight"};
    /* Left in files of models whose last layers use the keys and values of others. */
    static const char *const of_kv[] = {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"};
    static const char *const ends[] = {"token_embd", "position_embd", "output"};
    char *name;
    if (str_ends(t->name, ".input_scale"))
        return false;
    if (!str_starts(t->name, "blk.")) {
        /* Others are parts beside the model: towers for pictures, heads that classify. */
        for (size_t i = 0; i < ARRAY_LEN(ends); i++)
            if (str_starts(t->name, ends[i]))
                return true;
        return false;
    }
    /* Layers beyond the model's predict further tokens; some use an earlier layer's choice. */
    unsigned long layer = strtoul(t->name + strlen("blk."), &name, 10);
    if (layer >= hp->n_layers || *name != '.' ||
        (str_starts(name, ".indexer.") && hp->indexer.shared &&
         !hparams_layer_is(hp, (uint32_t)layer, LAYER_INDEXED)))
        return false;
    if (hparams_kv_layer(hp, (uint32_t)layer) != layer)
        for (size_t i = 0; i < ARRAY_LEN(of_kv); i++)
            if (str_eq(name + 1, of_kv[i]))
                return false;
    for (size_t i = 0; i < ARRAY_LEN(no_loss); i++)
        if (str_eq(name + 1, no_loss[i]))
            return false;
    return true;
}

static enum status check_unwanted(const struct gguf *g, const struct hparams *hp,
                                  const bool *wanted, struct err *err) {
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char shown[2 * GGUF_NAME_MAX];
        if (wanted[i] || !is_of_model(t, hp))
            continue;
        gguf_escape((struct gguf_str){t->name, strlen(t->name)}, shown, sizeof shown);
        return err_set(err, ST_UNSUPPORTED,
                       "%s: has the tensor %s, which lockstep does not know for the "
                       "architecture %s",
                       gguf_path(g), shown, hp->arch->name);
    }
    return ST_OK;
}

enum status weights_check(const struct gguf *g, const struct hparams *hp, struct err *err) {
    /* A rank with an empty share of every matrix in every layer needs all names and shapes. */
    const struct share none = {.layer_end = hp->n_layers, .last_stage = true};
    struct weights w;
    bool *wanted = mem_calloc(gguf_n_tensors(g), sizeof *wanted);
    if (wanted == NULL)
        return err_set(err, ST_NO_MEMORY, "%s: no memory to check it", gguf_path(g));
    enum status st = describe(&w, g, hp, &none, wanted, err);
    if (st == ST_OK) {
        weights_free(&w);
        st = check_unwanted(g, hp, wanted, err);
    }
    mem_free(wanted);
    return st;
}
