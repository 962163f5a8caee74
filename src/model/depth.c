/* depth.c: residual streams that layers have left. Each half layer reads a mixture of them and of
 * the current one (model/depth_mix.h). Before layer l the current stream is kept if l is a
 * multiple of hparams.mix_block. It begins anew with what the layer's attention gives. */
#include "model/depth_mix.h"
#include "model/forward.h"

static float *kept_of(const struct model *m, size_t t) {
    return m->kept + t * depth_width(m);
}

void depth_mix_token(const struct model *m, float *out, const float *x, size_t t,
                     uint32_t n_kept, const float *score) {
    const float *streams[DEPTH_MIX_MAX];
    for (uint32_t i = 0; i < n_kept; i++)
        streams[i] = kept_of(m, t) + (size_t)i * m->hp->n_embd;
    streams[n_kept] = x;
    depth_mix(m->k, out, streams, n_kept + 1, score, m->hp->n_embd, m->hp->rms_eps);
}

void depth_keep(const struct model *m, float *x, size_t t, uint32_t layer) {
    const size_t e = m->hp->n_embd;
    if (layer % m->hp->mix_block != 0)
        return;
    memcpy(kept_of(m, t) + hparams_n_kept(m->hp, layer) * e, x, e * sizeof *x);
    memset(x, 0, e * sizeof *x);
}
