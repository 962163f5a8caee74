/* openai_tools.c: Reads the tools of a request to the Responses API. */
#include "api/openai_items.h"
#include "base/json.h"
#include "base/util.h"
#include "server/reply.h"
#include "server/request_params.h"

/* The function is the tool itself here, and a member of it in the service's shape. */
static void add_function(json_t *out, const json_t *tool) {
    static const char *const keys[] = {"name", "description", "parameters", "strict"};
    json_t *function = json_object();
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        json_t *v = json_object_get(tool, keys[k]);
        if (v != NULL && !json_is_null(v))
            json_object_set(function, keys[k], v);
    }
    json_array_append_new(out,
                          json_pack("{s:s, s:o}", "type", "function", "function", function));
}

/* ---- custom tools ------------------------------------------------------------------------ */

/* The model is told the grammar; it is not enforced. */
static json_t *custom_description(const json_t *tool) {
    const json_t *format = json_object_get(tool, "format");
    const char *says = json_text(tool, "description"), *syntax = json_text(format, "syntax");
    if (!str_eq(json_text(format, "type"), "grammar"))
        return json_string(says);
    return json_sprintf("%s\n\nThe input must match this %s:\n%s", says,
                        str_eq(syntax, "regex") ? "regular expression" : "Lark grammar",
                        json_text(format, "definition"));
}

static void add_custom(json_t *out, const json_t *tool) {
    json_t *name = json_object_get(tool, "name");
    json_t *parameters =
        json_pack("{s:s, s:{s:{s:s}}, s:[s], s:b}", "type", "object", "properties", "input",
                  "type", "string", "required", "input", "additionalProperties", 0);
    json_array_append_new(out, json_pack("{s:s, s:{s:O*, s:o, s:o}}", "type", "function",
                                         "function", "name", name, "description",
                                         custom_description(tool), "parameters", parameters));
}

json_t *items_custom_input(const struct buf *arguments) {
    json_t *v =
        arguments->len > 0 ? json_loadb(arguments->bytes, arguments->len, 0, NULL) : NULL;
    json_t *input = json_object_get(v, "input");
    json_t *text = json_is_string(input) ? json_incref(input) : buf_json(arguments);
    json_decref(v);
    return text;
}

/* ---- all --------------------------------------------------------------------------------- */

/* Tools that a server would run itself, or of a form that no model here writes. */
static bool is_absent_here(const char *type) {
    static const char *const types[] = {"web_search",         "web_search_2025_08_26",
                                        "web_search_preview", "web_search_preview_2025_03_11",
                                        "file_search",        "computer",
                                        "computer_use",       "computer_use_preview",
                                        "code_interpreter",   "programmatic_tool_calling",
                                        "image_generation",   "mcp",
                                        "local_shell",        "shell",
                                        "apply_patch",        "tool_search"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_eq(type, types[i]))
            return true;
    return false;
}

static void add_one(json_t *out, const json_t *tool) {
    if (str_eq(json_text(tool, "type"), "function"))
        add_function(out, tool);
    else if (str_eq(json_text(tool, "type"), "custom"))
        add_custom(out, tool);
}

static void refuse_tool(struct params *p, size_t i, const json_t *tool) {
    const json_t *type = json_object_get(tool, "type");
    const char *name = json_string_value(type);
    params_fail(
        p, "tools",
        "tools[%zu].type must be \"function\" or \"custom\": \"%.40s\" is not supported", i,
        name != NULL ? name : json_kind(type));
}

json_t *items_tools(struct params *p) {
    const json_t *tools = NULL, *tool, *inner;
    size_t i, k, n_left_out = 0, left_out = 0;
    json_t *out = json_array();
    param_array(p, "tools", &tools);
    json_array_foreach((json_t *)tools, i, tool) {
        const char *type = json_text(tool, "type");
        if (str_eq(type, "function") || str_eq(type, "custom")) {
            add_one(out, tool);
        } else if (str_eq(type, "namespace")) {
            json_array_foreach(json_object_get(tool, "tools"), k, inner) {
                add_one(out, inner);
            }
        } else if (is_absent_here(type)) {
            left_out = n_left_out++ == 0 ? i : left_out;
        } else {
            refuse_tool(p, i, tool);
            return out;
        }
    }
    if (n_left_out > 0 && json_array_size(out) == 0)
        refuse_tool(p, left_out, json_array_get(tools, left_out));
    else
        tools_check(p, out);
    return out;
}
