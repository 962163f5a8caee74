/* decode.c: ids to text, one token at a time, in whole UTF-8 characters. */
#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_impl.h"

#define N_REPLACEMENT 3 /* bytes of U+FFFD */

void token_stream_init(struct token_stream *s, const struct tokenizer *t, bool special) {
    *s = (struct token_stream){.t = t, .special = special};
}

size_t tokenizer_max_token_bytes(const struct tokenizer *t) {
    /* In the worst case what was held and every byte becomes U+FFFD. */
    return N_REPLACEMENT * (t->v.max_token_bytes + 1);
}

static size_t put_replacement(char *out) {
    memcpy(out, UTF8_REPLACEMENT, N_REPLACEMENT);
    return N_REPLACEMENT;
}

/* Takes one byte. Writes the character that it completes. Writes U+FFFD for held bytes that it
 * does not continue, and for itself if it cannot begin a character. */
static size_t put_byte(struct token_stream *s, uint8_t byte, char *out) {
    size_t n = 0;
    s->held[s->n_held++] = byte;
    int len = utf8_check(s->held, s->n_held);
    if (len < 0 && s->n_held > 1) {
        n = put_replacement(out);
        s->held[0] = byte;
        s->n_held = 1;
        len = utf8_check(s->held, 1);
    }
    if (len == 0)
        return n;
    if (len < 0) {
        n += put_replacement(out + n);
    } else {
        memcpy(out + n, s->held, (size_t)len);
        n += (size_t)len;
    }
    s->n_held = 0;
    return n;
}

size_t token_stream_put(struct token_stream *s, int32_t id, char *buf, size_t cap) {
    BUG_ON(cap < tokenizer_max_token_bytes(s->t));
    struct gguf_str bytes = token_bytes(s->t, id, s->special);
    size_t begin = 0, n = 0;
    if (!s->started && bytes.len > 0) {
        s->started = true;
        begin = s->t->add_space_prefix && bytes.ptr[0] == ' ';
    }
    for (size_t i = begin; i < bytes.len; i++)
        n += put_byte(s, (uint8_t)bytes.ptr[i], buf + n);
    return n;
}

size_t token_stream_end(struct token_stream *s, char *buf, size_t cap) {
    BUG_ON(cap < N_REPLACEMENT);
    size_t n = s->n_held > 0 ? put_replacement(buf) : 0;
    s->n_held = 0;
    return n;
}

enum status detokenize(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                       char **text, size_t *len, struct err *err) {
    struct token_stream s;
    token_stream_init(&s, t, special);
    size_t used = 0, cap = 0, room = tokenizer_max_token_bytes(t) + N_REPLACEMENT + 1;
    char *out = NULL;
    for (size_t i = 0; i <= n; i++) {
        if (!mem_reserve(&out, &cap, used + room, 1)) {
            mem_free(out);
            return err_set(err, ST_NO_MEMORY, "no memory for the text of %zu tokens", n);
        }
        used += i < n ? token_stream_put(&s, ids[i], out + used, cap - used)
                      : token_stream_end(&s, out + used, cap - used);
    }
    out[used] = '\0';
    *text = out;
    *len = used;
    return ST_OK;
}
