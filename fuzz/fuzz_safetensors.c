/* fuzz_safetensors: any bytes are refused with a sentence, or become tensors that can be read
 * to their last byte and share none. Seeds: corpus/safetensors. */
#include "base/status.h"
#include "hf/safetensors.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safe_file f;
    struct err err = {.text = ""};
    if (safetensors_parse(&f, data, size, &err) != ST_OK) {
        if (strlen(err.text) < 10)
            abort();
        return 0;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < f.n; i++) {
        const struct safe_tensor *t = &f.tensors[i];
        uint64_t n = safe_dtype_bytes(t->dtype);
        for (uint32_t d = 0; d < SAFE_MAX_DIMS; d++)
            n *= t->dims[d];
        if (n != t->size_bytes || (i > 0 && strcmp(f.tensors[i - 1].name, t->name) >= 0))
            abort();
        for (uint64_t k = 0; k < t->size_bytes; k++)
            sink = sink + t->data[k];
        bytes += t->size_bytes;
    }
    if (bytes > size)
        abort();
    safetensors_deinit(&f);
    return 0;
}
