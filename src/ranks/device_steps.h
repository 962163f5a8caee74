/* device_steps.h: which steps of a rank its device computes, where the processor could do so over
 * the same cache: what was measured with the model itself. */
#ifndef LOCKSTEP_RANKS_DEVICE_STEPS_H
#define LOCKSTEP_RANKS_DEVICE_STEPS_H

#include "fabric/fabric.h"
#include "model/model.h"

/* Steps of [from, until) tokens are the device's, any others the processor's. */
struct device_steps {
    uint32_t from, until;
};

/* Collective, of ranks that have just opened their models: each computes the same few steps on its
 * device and on its processor, with more and more tokens, until no device is slower or each will
 * stay so. A rank that chooses gets, and tells its model, the least number with which its device
 * was as fast; there is none: its processor computes all. Other ranks compute along. all: NULL
 * alone. ST_PEER_LOST. */
enum status device_steps_measure(struct device_steps *out, struct model *m, bool chooses,
                                 const struct model_config *cfg, const struct hparams *hp,
                                 struct team *all, struct err *err);

/* "NAME", "avx2", "NAME from 16 tokens on, avx2 below"; device: NULL: there is none. */
void device_steps_text(char *buf, size_t size, const struct device_steps *its,
                       const char *device, const char *isa);

#endif
