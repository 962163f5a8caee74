/* request_params.c: Reads the fields that several APIs share. */
#include "server/request_params.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define REPEAT_ALL (1 << 20)

void request_memory_deinit(struct request_memory *m) {
    mem_free(m->biases);
    mem_free(m->ids);
}

static void param_seed(struct params *p, struct service_request *r) {
    const json_t *v = json_object_get(p->body, "seed");
    uint64_t *seed = &r->sampling.base.seed;
    double real = json_real_value(v);
    r->seed_by_chance = v == NULL || json_is_null(v) || json_number_value(v) == -1;
    if (r->seed_by_chance)
        return;
    if (json_is_integer(v))
        *seed = (uint64_t)json_integer_value(v);
    else if (json_is_real(v) && real == floor(real) && real > -0x1p63 && real < 0x1p64)
        *seed = real < 0 ? (uint64_t)(int64_t)real : (uint64_t)real; /* 42.0 */
    else
        params_fail(p, "seed", "seed must be a whole number");
}

static bool one_bias(struct params *p, const char *key, const json_t *value,
                     struct engine_bias *out) {
    char *end;
    long id = strtol(key, &end, 10);
    double bias = json_number_value(value);
    if (end == key || *end != '\0' || id < 0 || id > INT32_MAX)
        return params_fail(p, "logit_bias", "logit_bias: \"%.40s\" is not a token id", key);
    if (!json_is_number(value) || bias < -100 || bias > 100)
        return params_fail(
            p, "logit_bias",
            "logit_bias: the bias of token %ld must be a number from -100 to 100", id);
    *out = (struct engine_bias){(int32_t)id, (float)bias};
    return true;
}

/* llama.cpp's list of pairs, such as [[15043, 1.5], [2, false]], as the object that OpenAI has. */
static void read_bias_list(struct params *p) {
    const json_t *list = json_object_get(p->body, "logit_bias"), *pair;
    json_t *object = json_is_array(list) ? json_object() : NULL;
    size_t i;
    char key[24];
    json_array_foreach((json_t *)list, i, pair) {
        const json_t *id = json_array_get(pair, 0), *bias = json_array_get(pair, 1);
        if (!json_is_integer(id) || bias == NULL) {
            params_fail(p, "logit_bias",
                        "logit_bias[%zu] must be a token id and its bias, in a list", i);
            break;
        }
        snprintf(key, sizeof key, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        json_object_set_new(object, key,
                            json_is_false(bias) ? json_integer(-100)
                                                : json_incref((json_t *)bias));
    }
    if (object != NULL)
        json_object_set_new(p->body, "logit_bias", object);
}

static void param_biases(struct params *p, struct service_request *r,
                         struct request_memory *m) {
    const json_t *object = NULL, *value;
    const char *key;
    size_t n = 0;
    read_bias_list(p);
    param_object(p, "logit_bias", &object);
    if (object == NULL || json_object_size(object) == 0)
        return;
    m->biases = mem_calloc(json_object_size(object), sizeof *m->biases);
    if (m->biases == NULL) {
        params_fail(p, "logit_bias", "no memory for logit_bias");
        return;
    }
    json_object_foreach((json_t *)object, key,
                        value) if (!one_bias(p, key, value, &m->biases[n++])) return;
    r->sampling.biases = m->biases;
    r->sampling.n_biases = n;
}

static void param_stop_ids(struct params *p, struct service_request *r,
                           struct request_memory *m) {
    const json_t *list = NULL, *id;
    size_t i;
    param_array(p, "stop_token_ids", &list);
    if (json_array_size(list) > STOPS_PER_REQUEST) {
        params_fail(p, "stop_token_ids", "stop_token_ids has %zu tokens, %d at most",
                    json_array_size(list), STOPS_PER_REQUEST);
        return;
    }
    json_array_foreach((json_t *)list, i, id) {
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v > INT32_MAX)
            params_fail(p, "stop_token_ids", "stop_token_ids[%zu] is not a token id", i);
        m->stop_ids[i] = (int32_t)v;
    }
    r->stop_ids = m->stop_ids;
    r->n_stop_ids = json_array_size(list);
}

/* Something that says so little that nobody would miss it. */
static bool asks_nothing(const json_t *v) {
    return v == NULL || json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static void refuse_others(struct params *p, const struct service_request *r) {
    static const char *const fields[] = {"use_beam_search",
                                         "bad_words",
                                         "allowed_token_ids",
                                         "prompt_logprobs",
                                         "truncate_prompt_tokens",
                                         "logits_processors",
                                         "include_stop_str_in_output",
                                         "mirostat",
                                         "dynatemp_range"};
    int best_of = r->n_choices;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (!asks_nothing(json_object_get(p->body, fields[i])))
            params_fail(p, fields[i], "%s is not supported", fields[i]);
    param_int(p, "best_of", 1, 64, &best_of);
    if (best_of != r->n_choices)
        params_fail(p, "best_of", "best_of is not supported; use n");
}

/* Some programs keep the list as the text of an array, or of what is in one. Another text is one
 * breaker. */
static void read_breakers(json_t *body) {
    const json_t *given = json_object_get(body, "dry_sequence_breakers");
    struct buf text = {0};
    if (!json_is_string(given) || json_string_length(given) == 0)
        return;
    json_t *list = json_loads(json_string_value(given), 0, NULL);
    if (list == NULL && buf_printf(&text, "[%s]", json_string_value(given)))
        list = json_loads(text.bytes, 0, NULL);
    buf_free(&text);
    if (json_is_array(list))
        json_object_set(body, "dry_sequence_breakers", list);
    else
        json_object_set_new(body, "dry_sequence_breakers", json_pack("[O]", (json_t *)given));
    json_decref(list);
}

/* Under llama.cpp's names. */
static void param_newer(struct params *p, struct service_request *r, struct request_memory *m) {
    struct engine_sampling *s = &r->sampling;
    struct engine_dry *dry = &s->dry;
    size_t n = 0;
    param_float(p, "top_n_sigma", -1, 1000, &s->top_n_sigma);
    s->top_n_sigma = MAX(s->top_n_sigma, 0.0f); /* -1: off */
    param_float(p, "xtc_probability", 0, 1, &s->xtc_probability);
    param_float(p, "xtc_threshold", 0, 1, &s->xtc_threshold);
    param_float(p, "dry_multiplier", 0, 100, &dry->multiplier);
    param_float(p, "dry_base", 1, 100, &dry->base);
    param_int(p, "dry_allowed_length", 1, 1 << 20, &dry->allowed_length);
    param_int(p, "dry_penalty_last_n", -1, INT32_MAX, &dry->last_n);
    if (dry->last_n < 0) /* the whole context */
        dry->last_n = INT32_MAX;
    read_breakers(p->body);
    param_texts(p, "dry_sequence_breakers", STOPS_PER_REQUEST, m->breakers, &n);
    if (json_is_array(json_object_get(p->body, "dry_sequence_breakers"))) {
        dry->breakers = m->breakers;
        dry->n_breakers = n;
    }
}

void param_sampling(struct params *p, struct service_request *r, struct request_memory *m) {
    struct lockstep_sampling *s = &r->sampling.base;
    param_float(p, "temperature", 0, 2, &s->temperature);
    param_float(p, "top_p", 0, 1, &s->top_p);
    s->top_p = MAX(s->top_p, 1e-6f);               /* 0: the likeliest alone */
    param_int(p, "top_k", -1, 1 << 30, &s->top_k); /* -1 is off, too, to vLLM's clients */
    s->top_k = MAX(s->top_k, 0);
    param_float(p, "min_p", 0, 1, &s->min_p);
    param_float(p, "typical_p", 0, 1, &r->sampling.typical_p);
    r->sampling.typical_p = MAX(r->sampling.typical_p, 1e-6f); /* 0: the most typical alone */
    param_float(p, "repeat_penalty", 0.01, 100, &s->repeat_penalty);
    param_float(p, "repetition_penalty", 0.01, 100, &s->repeat_penalty);
    param_int(p, "repeat_last_n", -1, REPEAT_ALL, &s->repeat_last_n);
    if (s->repeat_last_n < 0) /* Ollama's name for the whole context */
        s->repeat_last_n = REPEAT_ALL;
    param_newer(p, r, m);
    param_float(p, "presence_penalty", -2, 2, &r->sampling.presence_penalty);
    param_float(p, "frequency_penalty", -2, 2, &r->sampling.frequency_penalty);
    param_bool(p, "ignore_eos", &r->ignore_end);
    param_biases(p, r, m);
    param_seed(p, r);
    param_stop_ids(p, r, m);
    param_int(p, "min_tokens", 0, 1 << 24, &r->min_tokens);
    refuse_others(p, r);
}

void param_limit(struct params *p, const char *field, bool may_be_none,
                 struct service_request *r) {
    param_int(p, field, -1, 1 << 24, &r->n_predict);
    if (r->n_predict == 0 && !may_be_none)
        params_fail(p, field,
                    "%s is 0, but an answer has at least one token; -1 stands for no limit",
                    field);
}

void param_stops(struct params *p, const char *field, struct service_request *r,
                 struct request_memory *m) {
    param_texts(p, field, STOPS_PER_REQUEST, m->stops, &r->n_stops);
    for (size_t i = 0; i < r->n_stops; i++)
        if (m->stops[i][0] == '\0')
            params_fail(p, field, "%s: a stop string must not be empty", field);
    r->stops = m->stops;
}

bool tools_check(struct params *p, const json_t *tools) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *function = json_object_get(tool, "function");
        const json_t *name = json_object_get(function, "name");
        const json_t *parameters = json_object_get(function, "parameters");
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (type != NULL && !str_eq(type, "function"))
            return params_fail(p, "tools",
                               "tools[%zu]: %.40s tools are not supported; use a function", i,
                               type);
        if (!json_is_object(function))
            return params_fail(p, "tools", "tools[%zu].function must be an object, not %s", i,
                               json_kind(function));
        if (!json_is_string(name) || json_string_length(name) == 0)
            return params_fail(p, "tools", "tools[%zu].function.name must be a string", i);
        if (parameters != NULL && !json_is_null(parameters) && !json_is_object(parameters))
            return params_fail(p, "tools",
                               "tools[%zu].function.parameters must be an object, not %s", i,
                               json_kind(parameters));
    }
    return true;
}

/* Of {"function": {"name"}}, or, as in responses, {"name"}. */
static const char *function_name(const json_t *v) {
    const json_t *function = json_object_get(v, "function");
    return json_string_value(json_object_get(function != NULL ? function : v, "name"));
}

static bool names_tool(const json_t *tools, const char *name) {
    size_t i;
    const json_t *one;
    json_array_foreach((json_t *)tools, i, one) {
        const char *its = function_name(one);
        if (its != NULL && str_eq(its, name))
            return true;
    }
    return false;
}

/* {"type": "allowed_tools", "mode", "tools"}, in chat completions within "allowed_tools": the
 * others are not there. */
static void allow_tools(struct params *p, const json_t *choice, struct service_request *r) {
    const json_t *inner = json_object_get(choice, "allowed_tools"), *tool;
    const json_t *says = inner != NULL ? inner : choice;
    const json_t *allowed = json_object_get(says, "tools");
    const char *mode = json_string_value(json_object_get(says, "mode"));
    size_t i;
    if (!json_is_array(allowed) || mode == NULL ||
        (!str_eq(mode, "auto") && !str_eq(mode, "required"))) {
        params_fail(p, "tool_choice",
                    "tool_choice of type allowed_tools needs tools and a mode, \"auto\" or "
                    "\"required\"");
        return;
    }
    json_t *left = json_array();
    json_array_foreach((json_t *)r->tools, i, tool) {
        const char *name = function_name(tool);
        if (name != NULL && names_tool(allowed, name))
            json_array_append(left, (json_t *)tool);
    }
    json_object_set_new(p->body, "allowed tools", left); /* which keeps them alive */
    r->tools = left;
    r->tool_choice = str_eq(mode, "required") ? TOOLS_REQUIRED : TOOLS_AUTO;
}

void tool_choice_check(struct params *p, const struct service_request *r) {
    if (r->tool_choice != TOOLS_REQUIRED)
        return;
    if (json_array_size(r->tools) == 0)
        params_fail(p, "tool_choice", "tool_choice asks for a call, but there are no tools");
    else if (r->tool_name != NULL && !names_tool(r->tools, r->tool_name))
        params_fail(p, "tool_choice", "tool_choice: there is no tool \"%.100s\" in tools",
                    r->tool_name);
}

void param_tool_choice(struct params *p, struct service_request *r) {
    bool parallel = true;
    const json_t *v = json_object_get(p->body, "tool_choice");
    const char *word = json_string_value(v);
    param_bool(p, "parallel_tool_calls", &parallel);
    r->one_call = !parallel;
    if (v == NULL || json_is_null(v))
        return;
    const char *type = json_string_value(json_object_get(v, "type"));
    if (type != NULL && str_eq(type, "allowed_tools")) {
        allow_tools(p, v, r);
    } else if (json_is_object(v)) {
        r->tool_choice = TOOLS_REQUIRED;
        r->tool_name = function_name(v);
        if (r->tool_name == NULL)
            params_fail(p, "tool_choice", "tool_choice.function.name must be a string");
    } else if (word != NULL && str_eq(word, "none")) {
        r->tool_choice = TOOLS_NONE;
    } else if (word != NULL && str_eq(word, "required")) {
        r->tool_choice = TOOLS_REQUIRED;
    } else if (word == NULL || !str_eq(word, "auto")) {
        params_fail(p, "tool_choice",
                    "tool_choice must be \"none\", \"auto\", \"required\" or an object that "
                    "names a function");
    }
    tool_choice_check(p, r);
}

void param_tools(struct params *p, struct service_request *r) {
    param_array(p, "tools", &r->tools);
    tools_check(p, r->tools);
    param_tool_choice(p, r);
}

void param_model(struct params *p, const struct service *s) {
    const char *name = NULL;
    param_text(p, "model", &name);
    bool is_found = p->model != NULL && service_is_model(s, p->model);
    if (p->st != ST_OK || name == NULL || *name == '\0' || is_found ||
        service_is_model(s, name))
        return;
    params_fail_code(p, ST_NOT_FOUND, ERR_MODEL_UNKNOWN, "model",
                     "the model \"%.100s\" does not exist here; this server has \"%s\"", name,
                     service_facts(s)->name);
}

static void param_pooling(struct params *p, const struct service *s,
                          struct service_request *r) {
    static const char *const words[] = {[POOLING_NONE] = "mean",
                                        [POOLING_MEAN] = "mean",
                                        [POOLING_FIRST] = "cls",
                                        [POOLING_LAST] = "last",
                                        [POOLING_RANK] = "rank"};
    const char *wanted = words[service_facts(s)->pooling];
    param_text(p, "pooling", &wanted);
    r->embed_last = str_eq(wanted, "last");
    if (r->embed_last || str_eq(wanted, "mean"))
        return;
    if (json_object_get(p->body, "pooling") != NULL)
        params_fail(p, "pooling", "pooling must be \"mean\" or \"last\"");
    else
        params_fail(
            p, "pooling",
            "this model's embeddings are made by \"%s\", which is not supported; \"pooling\" "
            "may be \"mean\" or \"last\"",
            wanted);
}

void param_embedding(struct params *p, const struct service *s, struct service_request *r) {
    r->embed = true;
    param_pooling(p, s, r);
    param_int(p, "dimensions", 1, service_facts(s)->n_embd, &r->n_dimensions);
}

void extra_effort(json_t *extra, const char *effort) {
    if (str_eq(effort, "none")) {
        json_object_set_new(extra, "enable_thinking", json_false());
        return;
    }
    json_object_set_new(extra, "reasoning_effort", json_string(effort));
    if (json_object_get(extra, "enable_thinking") == NULL &&
        json_object_get(extra, "thinking") == NULL)
        json_object_set_new(extra, "enable_thinking", json_true());
}

bool ends_with_answer(const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const json_t *content = json_object_get(last, "content");
    bool text = json_string_length(content) > 0 || json_array_size(content) > 0;
    return role != NULL && str_eq(role, "assistant") && text &&
           json_array_size(json_object_get(last, "tool_calls")) == 0;
}
