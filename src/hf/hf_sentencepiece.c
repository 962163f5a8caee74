/* hf_sentencepiece.c: tokenizer.model of folders without tokenizer.json, such as older ones of
 * Llama, Mistral and Gemma. The file has the pieces. Special tokens that were added later are
 * in tokenizer_config.json, or in even older folders in added_tokens.json. */
#include "base/util.h"
#include "hf/hf_impl.h"
#include "hf/sentencepiece.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_BYTES ((size_t)64 << 20)

static enum status put_pieces(const struct hf_folder *f, const struct sp_model *m,
                              uint32_t n_vocab, json_t *model, int32_t *type, float *score,
                              struct err *err) {
    json_t *vocab = json_object_get(model, "vocab");
    if (m->n > n_vocab)
        return err_set(err, ST_BAD_INPUT,
                       "%s/" FOLDER_PIECES ": has %zu pieces, but the embedding has %u rows",
                       f->path, m->n, n_vocab);
    for (size_t i = 0; i < m->n; i++) {
        const struct sp_piece *p = &m->pieces[i];
        char text[1024];
        if (p->text.len >= sizeof text)
            return err_set(err, ST_BAD_INPUT, "%s/" FOLDER_PIECES ": piece %zu has %zu bytes",
                           f->path, i, p->text.len);
        memcpy(text, p->text.ptr, p->text.len);
        text[p->text.len] = '\0';
        if (json_object_get(vocab, text))
            return err_set(err, ST_BAD_INPUT,
                           "%s/" FOLDER_PIECES ": piece %zu is there already", f->path, i);
        if (json_object_set_new(vocab, text, json_integer((json_int_t)i)) != 0)
            return err_set(err, ST_BAD_INPUT,
                           "%s/" FOLDER_PIECES ": piece %zu is not valid UTF-8", f->path, i);
        type[i] = p->type;
        score[i] = p->score;
    }
    for (size_t i = m->n; i < n_vocab; i++)
        score[i] = -1e9f;
    return ST_OK;
}

static enum status add_token(const struct hf_folder *f, json_t *list, json_int_t id,
                             const json_t *token, struct err *err) {
    json_t *t = json_copy((json_t *)token);
    if (!t || json_object_set_new(t, "id", json_integer(id)) != 0 ||
        json_array_append_new(list, t) != 0)
        return hf_no_memory(f, err);
    return ST_OK;
}

/* "32000": {"content": "<|im_end|>", "special": true} */
static enum status add_decoder(const struct hf_folder *f, const json_t *decoder, json_t *list,
                               struct err *err) {
    const char *key;
    json_t *token;
    json_object_foreach((json_t *)decoder, key, token) {
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        if (*key < '0' || *key > '9' || *end != '\0' || id > INT32_MAX ||
            !json_is_object(token))
            return err_set(
                err, ST_BAD_INPUT,
                "%s/tokenizer_config.json: added_tokens_decoder: an entry is not a token "
                "with an id",
                f->path);
        TRY(add_token(f, list, (json_int_t)id, token, err));
    }
    return ST_OK;
}

/* {"<|im_end|>": 32000} */
static enum status add_file(const struct hf_folder *f, json_t *list, struct err *err) {
    json_t *file, *id;
    const char *text;
    enum status st = hf_json(f, "added_tokens.json", MAX_BYTES, &file, err);
    if (st != ST_OK)
        return st == ST_NOT_FOUND ? ST_OK : st;
    json_object_foreach(file, text, id) {
        json_t *token = json_pack("{s:s, s:b}", "content", text, "special", 0);
        st = !token ? hf_no_memory(f, err)
             : json_is_integer(id)
                 ? add_token(f, list, json_integer_value(id), token, err)
                 : err_set(err, ST_BAD_INPUT, "%s/added_tokens.json: an id is not an integer",
                           f->path);
        json_decref(token);
        if (st != ST_OK)
            break;
    }
    json_decref(file);
    return st;
}

static enum status read_all(const struct hf_folder *f, const struct file_map *map,
                            const json_t *settings, uint32_t n_vocab, json_t *out,
                            int32_t *type, float *score, struct err *err) {
    struct sp_model m;
    enum status st = sp_parse(&m, map->bytes, map->size, err);
    if (st != ST_OK)
        return err_prefix(err, st, "%s: ", map->path);
    st = put_pieces(f, &m, n_vocab, json_object_get(out, "model"), type, score, err);
    const json_t *decoder = json_object_get(settings, "added_tokens_decoder");
    json_t *list = json_object_get(out, "added_tokens");
    if (st == ST_OK)
        st = json_is_object(decoder) ? add_decoder(f, decoder, list, err)
                                     : add_file(f, list, err);
    if (st == ST_OK && m.space_prefix &&
        json_object_set_new(out, "normalizer", json_pack("{s:s}", "type", "Prepend")) != 0)
        st = hf_no_memory(f, err);
    sp_deinit(&m);
    return st;
}

enum status hf_sentencepiece(const struct hf_folder *f, const json_t *settings,
                             uint32_t n_vocab, json_t **out, int32_t *type, float *score,
                             struct err *err) {
    struct file_map map;
    TRY(hf_map(f, FOLDER_PIECES, MAX_BYTES, &map, err));
    json_t *o = json_pack("{s:{s:s, s:b, s:{}, s:[]}, s:[]}", "model", "type", "BPE",
                          "byte_fallback", 1, "vocab", "merges", "added_tokens");
    enum status st =
        o ? read_all(f, &map, settings, n_vocab, o, type, score, err) : hf_no_memory(f, err);
    file_map_close(&map);
    if (st == ST_OK)
        *out = o;
    else
        json_decref(o);
    return st;
}
