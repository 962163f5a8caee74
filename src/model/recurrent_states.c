/* recurrent_states.c: slots of states, in one block. */
#include "model/recurrent_states.h"

#include "base/mem.h"
#include "base/util.h"

enum status recurrent_states_open(struct recurrent_states *s, size_t slot_bytes,
                                  uint32_t n_slots, struct err *err) {
    struct recurrent_states out = {.n_slots = n_slots,
                                   .slot_floats = slot_bytes / sizeof(float)};
    if (!mul_size(slot_bytes, n_slots, &out.data_bytes))
        return err_set(err, ST_NO_MEMORY, "such states do not fit the address space");
    if (out.data_bytes != 0)
        out.data = mem_huge_alloc(out.data_bytes);
    if (out.data_bytes != 0 && out.data == NULL)
        return err_set(err, ST_NO_MEMORY,
                       "no memory for %u states of %.1f MB each: fewer requests at a time "
                       "(--parallel-requests) or more ranks need less",
                       n_slots, (double)slot_bytes * 1e-6);
    *s = out;
    return ST_OK;
}

void recurrent_states_close(struct recurrent_states *s) {
    if (s->data != NULL)
        mem_huge_free(s->data, s->data_bytes);
    *s = (struct recurrent_states){0};
}
