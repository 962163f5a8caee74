/* fuzz_gguf: any bytes are refused with a sentence, or become a model whose every string, array
 * and tensor can be read to its last byte. Seeds: corpus/gguf. */
#include "base/status.h"
#include "format/gguf.h"
#include "format/gguf_parse.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static void touch(const void *p, size_t n) {
    const uint8_t *bytes = p;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += bytes[i];
    sink = sink + sum;
}

static void read_array(const struct gguf_array *a) {
    for (size_t i = 0; i < a->n; i++) {
        if (a->type == GGUF_STRING)
            touch(a->strs[i].ptr, a->strs[i].len);
        else if (a->type == GGUF_F32 || a->type == GGUF_F64)
            sink = sink + (gguf_array_float(a, i) > 0);
        else
            sink = sink + (uint64_t)gguf_array_int(a, i);
    }
}

static void read_key(const struct gguf *g, struct gguf_str name) {
    char key[64], text[40];
    uint32_t u32;
    uint64_t u64;
    float f32;
    bool b;
    struct gguf_str s;
    struct gguf_array a;
    struct err err;
    if (name.len >= sizeof key || memchr(name.ptr, '\0', name.len))
        return;
    memcpy(key, name.ptr, name.len);
    key[name.len] = '\0';
    if (!gguf_has(g, key))
        abort();
    gguf_value_text(g, key, text, sizeof text);
    gguf_u32(g, key, &u32, &err);
    gguf_u64(g, key, &u64, &err);
    gguf_f32(g, key, &f32, &err);
    gguf_bool(g, key, &b, &err);
    if (gguf_str(g, key, &s, &err) == ST_OK)
        touch(s.ptr, s.len);
    if (gguf_array(g, key, &a, &err) == ST_OK)
        read_array(&a);
}

static void read_tensor(const struct gguf *g, const struct gguf_tensor *t) {
    if (gguf_tensor(g, t->name) != t)
        abort();
    if (t->data)
        touch(t->data, (size_t)t->size_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gguf *g;
    struct err err = {.text = ""};
    const struct gguf_options opts = {.header_only = size % 2 == 1};
    if (gguf_open_bytes(&g, "fuzz", data, size, &opts, &err) != ST_OK) {
        if (strlen(err.text) < 10)
            abort();
        return 0;
    }
    for (size_t i = 0; i < gguf_n_keys(g); i++)
        read_key(g, gguf_key_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        read_tensor(g, gguf_tensor_at(g, i));
    gguf_close(g);
    return 0;
}
