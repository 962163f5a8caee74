/* recurrent_states.h: the memory of the states of recurrent layers on one rank.
 *
 * States lie in slots. A run of a step (struct step_run) names the slot with the state to
 * continue from, and the slot for the new state. Rank 0 assigns slots, and they mean the same
 * on every rank. At position 0 a state is zero. */
#ifndef LOCKSTEP_MODEL_RECURRENT_STATES_H
#define LOCKSTEP_MODEL_RECURRENT_STATES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define STATE_NONE UINT32_MAX

struct recurrent_states {
    float *data; /* owned: [n_slots][recurrent layers of the stage][layer_floats] */
    uint32_t n_slots;
    size_t slot_floats, data_bytes;
};
enum status recurrent_states_open(struct recurrent_states *s, size_t slot_bytes,
                                  uint32_t n_slots, struct err *err);
void recurrent_states_close(struct recurrent_states *s);

#endif
