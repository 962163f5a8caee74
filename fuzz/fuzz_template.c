/* Fuzzes chat templates: the input is a template, compiled and rendered with a conversation that
 * has tools, calls, null contents and odd characters. What renders must be UTF-8 of the length
 * that is said, and the same again. */
#include "base/mem.h"
#include "base/status.h"
#include "jinja/template.h"
#include "jinja/template_value.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char variables[] =
    "{\"messages\": ["
    "{\"role\": \"system\", \"content\": \"Be <brief>.\"},"
    "{\"role\": \"user\", \"content\": \"h\\u00e9llo \\ud83d\\ude00\\n\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"call00001\","
    " \"type\": \"function\", \"function\": {\"name\": \"look\","
    " \"arguments\": {\"x\": 1.5, \"y\": [true, null]}}}]},"
    "{\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"content\": \"{}\"},"
    "{\"role\": \"assistant\", \"content\": \"<think>a</think>b\"}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"look\","
    " \"description\": \"looks\", \"parameters\": {\"type\": \"object\","
    " \"properties\": {\"x\": {\"type\": \"number\"}}, \"required\": [\"x\"]}}}],"
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\","
    "\"n\": -7, \"big\": 9223372036854775807, \"f\": 1e300, \"s\": \" a,b \"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *vars;
    if (vars == NULL) {
        json_error_t e;
        vars = json_loads(variables, 0, &e);
        BUG_ON(vars == NULL);
    }
    struct template *t;
    struct err err;
    if (template_compile(&t, (const char *)data, size, &err) != ST_OK)
        return 0;
    const struct template_clock now = {2024, 11, 20, 9, 8, 7};
    char *text = NULL, *again = NULL;
    size_t len = 0, len_again = 0;
    enum status st = template_render(t, vars, &now, &text, &len, &err);
    if (st == ST_OK) {
        BUG_ON(strlen(text) > len || text[len] != '\0' || !utf8_valid(text, len));
        st = template_render(t, vars, &now, &again, &len_again, &err);
        BUG_ON(st != ST_OK || len_again != len || memcmp(text, again, len) != 0);
    }
    mem_free(text);
    mem_free(again);
    template_close(t);
    return 0;
}
