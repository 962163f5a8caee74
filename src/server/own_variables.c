/* own_variables.c: What Kimi K3's template is told: whether and how hard to think, whether it must
 * call, and the form of the answer. */
#include "server/own_variables.h"

#include "base/util.h"

/* It knows "low", "high" and "max", and refuses others. */
static const char *thinking_effort(const char *effort) {
    if (str_eq(effort, "minimal") || str_eq(effort, "low"))
        return "low";
    return str_eq(effort, "max") || str_eq(effort, "xhigh") ? "max" : "high";
}

static void set_if_absent(json_t *variables, const char *key, json_t *value) {
    if (json_object_get(variables, key) == NULL)
        json_object_set(variables, key, value);
    json_decref(value);
}

static void add_thinking(json_t *variables) {
    const char *effort = json_string_value(json_object_get(variables, "reasoning_effort"));
    json_t *thinks = json_object_get(variables, "enable_thinking");
    if (thinks != NULL)
        set_if_absent(variables, "thinking", json_incref(thinks));
    if (effort != NULL)
        set_if_absent(variables, "thinking_effort", json_string(thinking_effort(effort)));
}

static json_t *response_format(const struct service_request *r) {
    if (r->form == FORM_SCHEMA)
        return json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema",
                         r->schema);
    return r->form == FORM_JSON ? json_pack("{s:s}", "type", "json_object") : NULL;
}

json_t *own_variables(enum chat_format format, const struct service_request *r) {
    if (format != CHAT_KIMI_K3)
        return json_incref((json_t *)r->extra);
    json_t *variables = r->extra != NULL ? json_copy((json_t *)r->extra) : json_object();
    json_t *form = response_format(r);
    add_thinking(variables);
    if (r->tool_choice == TOOLS_REQUIRED && json_array_size(r->tools) > 0)
        set_if_absent(variables, "tool_choice", json_string("required"));
    if (form != NULL)
        set_if_absent(variables, "response_format", form);
    return variables;
}
