/* fuzz_sentencepiece: any bytes are refused with a sentence, or become pieces that lie inside
 * them. Seeds: corpus/sentencepiece. */
#include "base/status.h"
#include "hf/sentencepiece.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sp_model m;
    struct err err = {.text = ""};
    if (sp_parse(&m, data, size, &err) != ST_OK) {
        if (strlen(err.text) < 10)
            abort();
        return 0;
    }
    for (size_t i = 0; i < m.n; i++) {
        const struct sp_piece *p = &m.pieces[i];
        const uint8_t *text = (const uint8_t *)p->text.ptr;
        if (text < data || p->text.len == 0 || text + p->text.len > data + size ||
            memchr(text, '\0', p->text.len) != NULL || p->type < 1 || p->type > 6 ||
            !isfinite(p->score))
            abort();
    }
    sp_deinit(&m);
    return 0;
}
