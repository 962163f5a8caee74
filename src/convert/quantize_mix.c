/* quantize_mix.c: which matrices of a mix get more bits: values (all heads of a group share
 * them), the second half of the FFN, and the output. Some mixes do so only in a part of the
 * layers. These are the rules by which the names are commonly known. */
#include "convert/quantize_mix.h"

#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct quantize_mix mixes[] = {
    {"Q2_K", QT_Q2_K, 10},     {"Q3_K_S", QT_Q3_K, 11}, {"Q3_K_M", QT_Q3_K, 12},
    {"Q3_K_L", QT_Q3_K, 13},   {"Q4_0", QT_Q4_0, 2},    {"Q4_1", QT_Q4_1, 3},
    {"Q4_K_S", QT_Q4_K, 14},   {"Q4_K_M", QT_Q4_K, 15}, {"IQ4_XS", QT_IQ4_XS, 30},
    {"IQ4_NL", QT_IQ4_NL, 25}, {"Q5_0", QT_Q5_0, 8},    {"Q5_1", QT_Q5_1, 9},
    {"Q5_K_S", QT_Q5_K, 16},   {"Q5_K_M", QT_Q5_K, 17}, {"Q6_K", QT_Q6_K, 18},
};

enum where {
    EVERYWHERE,
    FIRST_2, /* layers */
    FIRST_4,
    FIRST_8TH, /* of the layers */
    FIRST_16TH,
    ENDS_AND_THIRDS, /* the first and the last eighth, and every third between */
    MANY_QUERIES,    /* four query heads or more for a key head */
};

enum weights { ANY, NO_WEIGHTS, WEIGHTS }; /* an importance matrix */

/* The first rule that fits counts. */
static const struct rule {
    const char *mix, *part;
    enum where where;
    enum qtype type;
    enum weights weights;
} rules[] = {
    {"Q2_K", "attn_v", MANY_QUERIES, QT_Q4_K, ANY},
    {"Q2_K", "attn_v", EVERYWHERE, QT_Q3_K, ANY},
    {"Q2_K", "ffn_down", EVERYWHERE, QT_Q3_K, ANY},
    {"Q2_K", "attn_output", EVERYWHERE, QT_Q3_K, ANY},
    {"Q3_K_M", "attn_v", FIRST_2, QT_Q5_K, ANY},
    {"Q3_K_M", "attn_v", EVERYWHERE, QT_Q4_K, ANY},
    {"Q3_K_M", "ffn_down", FIRST_16TH, QT_Q5_K, ANY},
    {"Q3_K_M", "ffn_down", EVERYWHERE, QT_Q4_K, ANY},
    {"Q3_K_M", "attn_output", EVERYWHERE, QT_Q4_K, ANY},
    {"Q3_K_M", "attn_qkv", EVERYWHERE, QT_Q4_K, ANY},
    {"Q3_K_L", "attn_v", EVERYWHERE, QT_Q5_K, ANY},
    {"Q3_K_L", "ffn_down", EVERYWHERE, QT_Q5_K, ANY},
    {"Q3_K_L", "attn_output", EVERYWHERE, QT_Q5_K, ANY},
    {"Q3_K_L", "attn_qkv", EVERYWHERE, QT_Q4_K, ANY},
    {"Q4_K_S", "attn_v", FIRST_4, QT_Q5_K, ANY},
    {"Q4_K_S", "ffn_down", FIRST_8TH, QT_Q5_K, ANY},
    {"Q4_K_M", "attn_v", ENDS_AND_THIRDS, QT_Q6_K, ANY},
    {"Q4_K_M", "ffn_down", ENDS_AND_THIRDS, QT_Q6_K, ANY},
    {"Q4_K_M", "attn_qkv", EVERYWHERE, QT_Q5_K, ANY},
    {"Q5_K_M", "attn_v", ENDS_AND_THIRDS, QT_Q6_K, ANY},
    {"Q5_K_M", "ffn_down", ENDS_AND_THIRDS, QT_Q6_K, ANY},
    {"Q5_K_M", "attn_qkv", EVERYWHERE, QT_Q6_K, ANY},
    {"Q4_0", "ffn_down", FIRST_8TH, QT_Q4_1, WEIGHTS},
    {"Q5_0", "ffn_down", FIRST_8TH, QT_Q5_1, WEIGHTS},
    {"IQ4_NL", "attn_v", MANY_QUERIES, QT_Q5_K, ANY},
    {"IQ4_NL", "ffn_down", FIRST_8TH, QT_Q5_K, NO_WEIGHTS},
    {"IQ4_XS", "attn_v", MANY_QUERIES, QT_Q5_K, ANY},
    {"IQ4_XS", "ffn_down", FIRST_8TH, QT_Q5_K, NO_WEIGHTS},
};

const struct quantize_mix *quantize_mix_at(size_t i) {
    return i < ARRAY_LEN(mixes) ? &mixes[i] : NULL;
}

const struct quantize_mix *quantize_mix_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(mixes); i++) {
        enum qtype type;
        bool exact = qtype_from_name(mixes[i].name, &type);
        if (exact ? str_eq(name, mixes[i].name) : strcasecmp(name, mixes[i].name) == 0)
            return &mixes[i];
    }
    return NULL;
}

/* ---- what the rules ask of a model --------------------------------------------------------- */

static uint32_t number_of(const struct gguf *in, const char *what) {
    struct gguf_str arch;
    char key[128];
    uint32_t n = 0;
    if (gguf_str(in, "general.architecture", &arch, NULL) != ST_OK)
        return 0;
    snprintf(key, sizeof key, "%.*s.%s", (int)MIN(arch.len, (uint64_t)64), arch.ptr, what);
    return gguf_u32(in, key, &n, NULL) == ST_OK ? n : 0;
}

/* "blk.7.attn_v.weight": the layer, and what comes after it. -1: in no layer. */
static long layer_of(const char *name, const char **part) {
    char *end;
    if (strncmp(name, "blk.", 4) != 0)
        return -1;
    long layer = strtol(name + 4, &end, 10);
    if (end == name + 4 || *end != '.' || layer < 0 || layer > 100000)
        return -1;
    *part = end + 1;
    return layer;
}

/* "ffn_down" stands for that of experts, too. */
static bool is_part(const char *part, const char *wanted) {
    size_t n = strlen(wanted);
    return strncmp(part, wanted, n) == 0 &&
           (str_eq(wanted, "ffn_down") || str_eq(part + n, ".weight"));
}

/* The place of a layer among those that have values, and how many there are: some layers have no
 * attention. */
static void count_values(const struct gguf *in, long *layer, long *n_layers) {
    long n = 0, place = 0;
    for (long i = 0; i < *n_layers; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%ld.attn_v.weight", i);
        bool has = gguf_tensor(in, name) != NULL;
        n += has;
        place += has && i < *layer;
    }
    *layer = place;
    *n_layers = n;
}

static bool applies(const struct gguf *in, enum where where, long i, long n) {
    uint32_t heads = number_of(in, "attention.head_count");
    uint32_t kv_heads = number_of(in, "attention.head_count_kv");
    switch (where) {
    case FIRST_2:
        return i < 2;
    case FIRST_4:
        return i < 4;
    case FIRST_8TH:
        return i < n / 8;
    case FIRST_16TH:
        return i < n / 16;
    case ENDS_AND_THIRDS:
        return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case MANY_QUERIES:
        return kv_heads > 0 && heads / kv_heads >= 4;
    default:
        return true;
    }
}

/* In a mixture of eight experts the attention is a small part of the file. */
static bool type_beside_experts(const struct quantize_mix *mix, const char *part,
                                enum qtype *type) {
    bool values = is_part(part, "attn_k") || is_part(part, "attn_v");
    bool small = (mix->type >= QT_Q2_K && mix->type < QT_Q5_K) || mix->type >= QT_IQ4_NL;
    *type = values ? QT_Q8_0 : QT_Q5_K;
    return values || (small && is_part(part, "attn_output"));
}

static bool rule_fits(const struct rule *r, const struct quantize_mix *mix, const char *part,
                      bool weighted) {
    return str_eq(r->mix, mix->name) && is_part(part, r->part) &&
           (r->weights == ANY || weighted == (r->weights == WEIGHTS));
}

enum qtype quantize_mix_type(const struct quantize_mix *mix, const struct gguf *in,
                             const struct gguf_tensor *t, bool weighted) {
    const char *part = "";
    long layer = layer_of(t->name, &part), n_layers = (long)number_of(in, "block_count");
    bool tied = gguf_tensor(in, "output.weight") == NULL;
    enum qtype type;
    if (str_eq(t->name, "output.weight") || (tied && str_eq(t->name, "token_embd.weight")))
        return QT_Q6_K;
    if (layer < 0)
        return mix->type;
    if (number_of(in, "expert_count") == 8 && type_beside_experts(mix, part, &type))
        return type;
    if (is_part(part, "attn_v"))
        count_values(in, &layer, &n_layers);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rule_fits(&rules[i], mix, part, weighted) &&
            applies(in, rules[i].where, layer, n_layers))
            return rules[i].type;
    return mix->type;
}
