/* inspect.c: `lockstep inspect`: shows what a model file contains. The facts are collected
 * once, as a JSON value. The text for people is made from that. */
#include "arch/hparams.h"
#include "base/printable.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/model_names.h"
#include "format/gguf.h"
#include "format/rows.h"
#include "hf/hf_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- facts ------------------------------------------------------------------------- */

/* The value of a key as JSON: numbers, strings and booleans as they are, arrays as "[8 i32]".
 * NULL if the key is absent. */
static json_t *value_of(const struct gguf *g, const char *key) {
    enum gguf_value_type type;
    struct gguf_str s;
    uint64_t u;
    bool b;
    float f;
    char text[64];
    if (!gguf_value_type(g, key, &type))
        return NULL;
    if (gguf_str(g, key, &s, NULL) == ST_OK)
        return cli_json_text(s.ptr, s.len);
    if (gguf_bool(g, key, &b, NULL) == ST_OK)
        return json_boolean(b);
    if (gguf_u64(g, key, &u, NULL) == ST_OK && u <= INT64_MAX)
        return json_integer((json_int_t)u);
    gguf_value_text(g, key, text, sizeof text);
    if ((type == GGUF_F32 || type == GGUF_F64) && gguf_f32(g, key, &f, NULL) == ST_OK &&
        f - f == 0) /* JSON has no infinity */
        return json_real(strtod(text, NULL));
    return json_string(text);
}

/* object[name] = the value of "prefix.key"; nothing if it is absent. */
static void put(json_t *object, const char *name, const struct gguf *g, const char *prefix,
                const char *key) {
    char full[256];
    snprintf(full, sizeof full, "%s%s%s", prefix, *prefix ? "." : "", key);
    json_t *value = value_of(g, full);
    if (value)
        json_object_set_new(object, name, value);
}

/* Drops empty parts. */
static void put_part(json_t *object, const char *name, json_t *part) {
    if (json_object_size(part) > 0)
        json_object_set(object, name, part);
    json_decref(part);
}

static double number(const json_t *o, const char *name) {
    return json_number_value(json_object_get(o, name));
}

static json_t *type_shares(const struct gguf_totals *all) {
    json_t *list = json_array();
    for (uint32_t type = 0; type < QT_N; type++) {
        const struct gguf_type_totals *t = &all->types[type];
        if (t->n_tensors != 0)
            json_array_append_new(
                list, json_pack("{s:s, s:I, s:I, s:I}", "type", qtype_info(type)->name,
                                "tensors", (json_int_t)t->n_tensors, "parameters",
                                (json_int_t)t->n_values, "bytes", (json_int_t)t->n_bytes));
    }
    return list;
}

/* Parameters that one token is multiplied with: of experts those that are used, of the
 * embedding none, unless it is the output matrix too. */
static double active_values(const struct gguf *g, const json_t *experts) {
    double used = MIN(number(experts, "used") / number(experts, "count"), 1.0);
    bool tied = gguf_tensor(g, "output.weight") == NULL;
    double sum = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (tied || !str_eq(t->name, "token_embd.weight"))
            sum += (double)gguf_n_values(t) * (strstr(t->name, "_exps.") ? used : 1);
    }
    return sum;
}

static void put_sizes(json_t *o, const struct gguf *g) {
    struct gguf_totals all;
    gguf_totals(g, &all);
    json_object_set_new(o, "tensors", json_integer((json_int_t)gguf_n_tensors(g)));
    json_object_set_new(o, "parameters", json_integer((json_int_t)all.n_values));
    json_object_set_new(o, "weight_bytes", json_integer((json_int_t)all.n_bytes));
    if (all.n_values != 0)
        json_object_set_new(o, "bits_per_weight",
                            json_real(8 * (double)all.n_bytes / (double)all.n_values));
    json_object_set_new(o, "types", type_shares(&all));
}

static void put_gating(json_t *experts, const struct gguf *g, const char *arch) {
    static const char *const names[] = {"softmax", "sigmoid", "softmax of the chosen"};
    char key[128];
    uint32_t n;
    snprintf(key, sizeof key, "%s.expert_gating_func", arch);
    if (gguf_u32(g, key, &n, NULL) == ST_OK && n >= 1 && n <= ARRAY_LEN(names))
        json_object_set_new(experts, "gating", json_string(names[n - 1]));
}

static void put_shape(json_t *o, const struct gguf *g, const char *arch) {
    static const char *const names[][2] = {
        {"layers", "block_count"},
        {"embedding_length", "embedding_length"},
        {"feed_forward_length", "feed_forward_length"},
        {"heads", "attention.head_count"},
        {"kv_heads", "attention.head_count_kv"},
        {"key_length", "attention.key_length"},
        {"value_length", "attention.value_length"},
        {"sliding_window", "attention.sliding_window"},
        {"kv_lora_rank", "attention.kv_lora_rank"},
        {"q_lora_rank", "attention.q_lora_rank"},
        {"context_length", "context_length"},
    };
    static const char *const rope[][2] = {
        {"freq_base", "rope.freq_base"},
        {"dimensions", "rope.dimension_count"},
        {"scaling", "rope.scaling.type"},
        {"factor", "rope.scaling.factor"},
        {"original_context_length", "rope.scaling.original_context_length"},
    };
    static const char *const experts[][2] = {
        {"count", "expert_count"},
        {"used", "expert_used_count"},
        {"shared", "expert_shared_count"},
        {"feed_forward_length", "expert_feed_forward_length"},
        {"shared_feed_forward_length", "expert_shared_feed_forward_length"},
        {"groups", "expert_group_count"},
        {"groups_used", "expert_group_used_count"},
        {"dense_layers", "leading_dense_block_count"},
        {"weights_scale", "expert_weights_scale"},
    };
    json_t *rope_part = json_object(), *experts_part = json_object();
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        put(o, names[i][0], g, arch, names[i][1]);
    for (size_t i = 0; i < ARRAY_LEN(rope); i++)
        put(rope_part, rope[i][0], g, arch, rope[i][1]);
    for (size_t i = 0; i < ARRAY_LEN(experts); i++)
        put(experts_part, experts[i][0], g, arch, experts[i][1]);
    put_gating(experts_part, g, arch);
    if (number(experts_part, "count") >= 1)
        json_object_set_new(o, "active_parameters",
                            json_integer((json_int_t)active_values(g, experts_part)));
    put_part(o, "rope", rope_part);
    put_part(o, "experts", experts_part);
}

static json_t *special_tokens(const struct gguf *g, const struct gguf_array *tokens) {
    static const char *const names[] = {"bos", "eos", "eot", "eom", "unknown", "padding"};
    json_t *list = json_object();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char key[64];
        uint32_t id;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[i]);
        if (gguf_u32(g, key, &id, NULL) != ST_OK)
            continue;
        json_t *token = json_pack("{s:I}", "id", (json_int_t)id);
        if (id < tokens->n)
            json_object_set_new(token, "text",
                                cli_json_text(tokens->strs[id].ptr, tokens->strs[id].len));
        json_object_set_new(list, names[i], token);
    }
    return list;
}

static json_t *tokenizer_facts_of(const struct gguf *g) {
    json_t *o = json_object();
    struct gguf_array tokens = {.n = 0}, merges;
    put(o, "model", g, "tokenizer.ggml", "model");
    put(o, "pre", g, "tokenizer.ggml", "pre");
    if (gguf_array(g, "tokenizer.ggml.tokens", &tokens, NULL) == ST_OK)
        json_object_set_new(o, "tokens", json_integer((json_int_t)tokens.n));
    if (tokens.type != GGUF_STRING)
        tokens.n = 0;
    if (gguf_array(g, "tokenizer.ggml.merges", &merges, NULL) == ST_OK)
        json_object_set_new(o, "merges", json_integer((json_int_t)merges.n));
    put(o, "add_bos", g, "tokenizer.ggml", "add_bos_token");
    put_part(o, "special", special_tokens(g, &tokens));
    return o;
}

static json_t *tensor_list(const struct gguf *g) {
    json_t *list = json_array();
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        json_t *dims = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(dims, json_integer((json_int_t)t->dims[d]));
        json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:I, s:I}", "name",
                                              cli_json_text(t->name, strlen(t->name)), "type",
                                              qtype_info(t->type)->name, "dims", dims, "bytes",
                                              (json_int_t)t->size_bytes, "part",
                                              (json_int_t)t->part + 1));
    }
    return list;
}

/* Why lockstep cannot run the model, as far as its keys tell. */
static void put_obstacle(json_t *o, const struct gguf *g) {
    struct hparams hp;
    struct err err = {0};
    if (hparams_read(&hp, g, &err) != ST_OK)
        json_object_set_new(o, "cannot_run", cli_json_text(err.text, strlen(err.text)));
}

static json_t *describe(const struct gguf *g, bool with_tensors) {
    json_t *o = json_object();
    struct gguf_str arch = {"", 0}, template;
    char prefix[64];
    gguf_str(g, "general.architecture", &arch, NULL);
    snprintf(prefix, sizeof prefix, "%.*s", (int)MIN(arch.len, sizeof prefix - 1), arch.ptr);
    bool has_data = gguf_n_tensors(g) > 0 && tensor_has_data(gguf_tensor_at(g, 0));
    json_object_set_new(o, "file", cli_json_text(gguf_path(g), strlen(gguf_path(g))));
    json_object_set_new(o, "file_bytes", json_integer((json_int_t)gguf_file_bytes(g)));
    json_object_set_new(o, "parts", json_integer(gguf_n_parts(g)));
    json_object_set_new(o, "gguf_version", json_integer(gguf_version(g)));
    json_object_set_new(o, "has_weights", json_boolean(has_data));
    put(o, "architecture", g, "general", "architecture");
    put(o, "name", g, "general", "name");
    put(o, "license", g, "general", "license");
    put_sizes(o, g);
    put_shape(o, g, prefix);
    put_part(o, "tokenizer", tokenizer_facts_of(g));
    json_object_set_new(
        o, "chat_template",
        json_boolean(gguf_str(g, "tokenizer.chat_template", &template, NULL) == ST_OK));
    put_obstacle(o, g);
    if (with_tensors)
        json_object_set_new(o, "tensor_list", tensor_list(g));
    return o;
}

/* ---- text for people --------------------------------------------------------------- */

/* A short value: strings are cut, and what would drive a terminal becomes '?'. "-" for NULL.
 * Returns buf. */
static const char *text(const json_t *value, char buf[128]) {
    if (json_is_integer(value))
        snprintf(buf, 128, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(buf, 128, "%.9g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(buf, 128, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_string(value))
        copy_printable(buf, 128, json_string_value(value), json_string_length(value));
    else
        snprintf(buf, 128, "-");
    return buf;
}

static const char *text_at(const json_t *o, const char *name, char buf[128]) {
    return text(json_object_get(o, name), buf);
}

/* ", LABEL VALUE" if the object has such an entry. */
static void print_also(const json_t *o, const char *name, const char *label) {
    char buf[128];
    if (json_object_get(o, name))
        printf(", %s %s", label, text_at(o, name, buf));
}

static const char *count_text(double n, char buf[32]) {
    if (n < 1e6)
        snprintf(buf, 32, "%.0f", n);
    else if (n < 1e9)
        snprintf(buf, 32, "%.3g million", n * 1e-6);
    else
        snprintf(buf, 32, "%.*f billion", n < 1e11 ? 2 : 0, n * 1e-9);
    return buf;
}

static void print_sizes(const json_t *o) {
    char buf[32], active[32];
    double n = number(o, "parameters"), used = number(o, "active_parameters");
    printf("file            %s, ", cli_bytes((uint64_t)number(o, "file_bytes"), buf));
    if (number(o, "gguf_version") != 0)
        printf("GGUF v%.0f", number(o, "gguf_version"));
    else
        printf("a folder of safetensors");
    if (number(o, "parts") > 1)
        printf(", %.0f parts", number(o, "parts"));
    if (n == 0) {
        printf("\nparameters      none: a vocabulary\n");
        return;
    }
    printf("%s\nparameters      %s in %.0f tensors, %.2f bits each",
           json_is_true(json_object_get(o, "has_weights")) ? "" : ", a header without weights",
           count_text(n, buf), number(o, "tensors"), number(o, "bits_per_weight"));
    if (used > 0)
        printf("; %s for a token", count_text(used, active));
    putchar('\n');
    size_t i;
    const json_t *type;
    json_array_foreach(json_object_get(o, "types"), i, type) {
        char name[128], size[32];
        printf("%-15s %-8s %5.1f %% of the parameters, %.0f tensors, %s\n", i ? "" : "types",
               text_at(type, "type", name), 100 * number(type, "parameters") / n,
               number(type, "tensors"), cli_bytes((uint64_t)number(type, "bytes"), size));
    }
}

static void print_shape(const json_t *o) {
    char a[128], b[128], c[128];
    if (!json_object_get(o, "layers"))
        return;
    printf("layers          %s, width %s, FFN %s\n", text_at(o, "layers", a),
           text_at(o, "embedding_length", b), text_at(o, "feed_forward_length", c));
    printf("heads           %s", text_at(o, "heads", a));
    print_also(o, "kv_heads", "kv heads");
    print_also(o, "key_length", "key length");
    print_also(o, "value_length", "value length");
    print_also(o, "kv_lora_rank", "latent");
    print_also(o, "sliding_window", "sliding window");
    printf("\ncontext         %s tokens\n", text_at(o, "context_length", a));
    const json_t *rope = json_object_get(o, "rope"), *experts = json_object_get(o, "experts");
    if (rope) {
        printf("rope            base %s", text_at(rope, "freq_base", a));
        print_also(rope, "dimensions", "dimensions");
        print_also(rope, "scaling", "scaling");
        print_also(rope, "factor", "factor");
        print_also(rope, "original_context_length", "original context");
        putchar('\n');
    }
    if (experts) {
        printf("experts         %s", text_at(experts, "count", a));
        print_also(experts, "used", "used");
        print_also(experts, "shared", "shared");
        print_also(experts, "feed_forward_length", "FFN");
        print_also(experts, "shared_feed_forward_length", "shared FFN");
        if (number(experts, "groups") > 1) {
            print_also(experts, "groups", "groups");
            print_also(experts, "groups_used", "groups used");
        }
        print_also(experts, "dense_layers", "dense layers");
        print_also(experts, "gating", "gating");
        print_also(experts, "weights_scale", "weights times");
        putchar('\n');
    }
}

static void print_tokenizer(const json_t *o) {
    char a[128], b[128];
    const json_t *t = json_object_get(o, "tokenizer"), *token;
    const char *name;
    if (!t) {
        printf("tokenizer       none\n");
        return;
    }
    printf("tokenizer       %s", text_at(t, "model", a));
    print_also(t, "pre", "pre-tokenizer");
    printf(", %s tokens", text_at(t, "tokens", a));
    print_also(t, "merges", "merges");
    print_also(t, "add_bos", "adds BOS:");
    putchar('\n');
    json_object_foreach(json_object_get((json_t *)t, "special"), name, token)
        printf("  %-13s %s  %s\n", name, text_at(token, "id", a), text_at(token, "text", b));
    printf("chat template   %s\n", text_at(o, "chat_template", a));
}

static void print_tensors(const json_t *o) {
    size_t i, d;
    const json_t *t, *dim;
    json_array_foreach(json_object_get(o, "tensor_list"), i, t) {
        char name[128], type[128], size[32], dims[128];
        size_t n = 0;
        json_array_foreach(json_object_get(t, "dims"), d, dim) n +=
            (size_t)snprintf(dims + n, sizeof dims - n, "%s%lld", d ? " x " : "",
                             (long long)json_integer_value(dim));
        printf("%-40s %-8s %-26s %s\n", text_at(t, "name", name), text_at(t, "type", type),
               dims, cli_bytes((uint64_t)number(t, "bytes"), size));
    }
}

static void print_for_people(const json_t *o) {
    char a[128];
    printf("%s\n", text_at(o, "file", a));
    printf("architecture    %s\n", text_at(o, "architecture", a));
    if (json_object_get(o, "name"))
        printf("name            %s\n", text_at(o, "name", a));
    if (json_object_get(o, "license"))
        printf("license         %s\n", text_at(o, "license", a));
    print_sizes(o);
    print_shape(o);
    print_tokenizer(o);
    const char *obstacle = json_string_value(json_object_get(o, "cannot_run"));
    if (obstacle != NULL)
        printf("lockstep cannot run this model: %s\n", obstacle);
    print_tensors(o);
}

static void print_keys(const struct gguf *g) {
    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        struct gguf_str s = gguf_key_at(g, i);
        char key[256], value[512];
        snprintf(key, sizeof key, "%.*s", (int)MIN(s.len, sizeof key - 1), s.ptr);
        gguf_value_text(g, key, value, sizeof value);
        printf("%-44s %s\n", gguf_escape(s, key, sizeof key), value);
    }
}

static json_t *keys_json(const struct gguf *g) {
    json_t *all = json_object();
    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        struct gguf_str s = gguf_key_at(g, i);
        char key[256];
        snprintf(key, sizeof key, "%.*s", (int)MIN(s.len, sizeof key - 1), s.ptr);
        json_t *value = value_of(g, key);
        json_object_set_new(all, gguf_escape(s, key, sizeof key), value);
    }
    return all;
}

int cmd_inspect(int argc, char **argv) {
    const char *model = NULL;
    bool as_json = false, tensors = false, keys = false;
    const struct cli_option options[] = {
        CLI_MODEL(&model, CLI_MODEL_HELP),
        CLI_FLAG(0, "json", &as_json, "prints a JSON object instead of text"),
        CLI_FLAG(0, "tensors", &tensors, "lists the tensors too"),
        CLI_FLAG(0, "keys", &keys, "prints only the file's own keys and their values"),
        CLI_END};
    const struct cli_command cmd = {
        "inspect", "shows what a model file holds",
        "Also works on files that have only a vocabulary or only a header.", options};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    if (keys && tensors)
        return cli_fail(ST_BAD_INPUT, "--keys shows nothing but keys: not with --tensors");
    struct gguf *g;
    struct err err;
    const struct gguf_options any = {.header_only = true};
    enum status st = hf_open_any(&g, model, &any, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    status = 0;
    if (keys && as_json) {
        status = cli_print_json(keys_json(g));
    } else if (keys) {
        print_keys(g);
    } else {
        json_t *facts = describe(g, tensors);
        if (as_json) {
            status = cli_print_json(facts);
        } else {
            print_for_people(facts);
            json_decref(facts);
        }
    }
    gguf_close(g);
    return status;
}
