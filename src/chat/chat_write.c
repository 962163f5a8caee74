/* chat_write.c: writes calls as text: Hermes' and Granite's JSON, and Python for LFM2. */
#include "chat/chat_write.h"

#include "base/buf.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>

static void write_json(struct buf *b, const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    buf_add_str(b, text != NULL ? text : "null");
    free(text);
}

static void write_call(struct buf *b, const json_t *function) {
    const json_t *arguments = json_object_get(function, "arguments");
    buf_add_str(b, "{\"name\": ");
    write_json(b, json_object_get(function, "name"));
    buf_add_str(b, ", \"arguments\": ");
    write_json(b, arguments);
    buf_add_str(b, "}");
}

static void write_python_text(struct buf *b, const char *text, size_t len) {
    buf_add_str(b, "'");
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n') {
            buf_add_str(b, "\\n");
            continue;
        }
        if (text[i] == '\'' || text[i] == '\\')
            buf_add_str(b, "\\");
        buf_add(b, text + i, 1);
    }
    buf_add_str(b, "'");
}

static void write_python(struct buf *b, const json_t *value) {
    const char *key;
    json_t *v;
    size_t i;
    bool first = true;
    if (json_is_object(value)) {
        buf_add_str(b, "{");
        json_object_foreach((json_t *)value, key, v) {
            buf_add_str(b, first ? "" : ", ");
            first = false;
            write_python_text(b, key, strlen(key));
            buf_add_str(b, ": ");
            write_python(b, v);
        }
        buf_add_str(b, "}");
    } else if (json_is_array(value)) {
        buf_add_str(b, "[");
        json_array_foreach(value, i, v) {
            buf_add_str(b, i == 0 ? "" : ", ");
            write_python(b, v);
        }
        buf_add_str(b, "]");
    } else if (json_is_string(value)) {
        write_python_text(b, json_string_value(value), json_string_length(value));
    } else if (json_is_number(value)) {
        write_json(b, value);
    } else {
        buf_add_str(b, json_is_true(value) ? "True" : json_is_false(value) ? "False" : "None");
    }
}

static void write_python_call(struct buf *b, const json_t *function) {
    const json_t *arguments = json_object_get(function, "arguments");
    const char *name = json_string_value(json_object_get(function, "name")), *key;
    json_t *v;
    bool first = true;
    buf_printf(b, "%s(", name != NULL ? name : "");
    json_object_foreach((json_t *)arguments, key, v) {
        buf_printf(b, "%s%s=", first ? "" : ", ", key);
        first = false;
        write_python(b, v);
    }
    if (!json_is_object(arguments)) /* a text that is not JSON */
        write_python(b, arguments);
    buf_add_str(b, ")");
}

static const struct writing {
    enum chat_format format;
    void (*call)(struct buf *b, const json_t *function);
    const char *begin, *between, *end;
} writings[] = {
    {CHAT_HERMES, write_call, "<tool_call>\n", "\n</tool_call>\n<tool_call>\n",
     "\n</tool_call>"},
    {CHAT_GRANITE, write_call, "<|tool_call|>[", ", ", "]"},
    {CHAT_LFM2, write_python_call, "<|tool_call_start|>[", ", ", "]<|tool_call_end|>"},
};

static const struct writing *find_writing(enum chat_format format) {
    for (size_t i = 0; i < ARRAY_LEN(writings); i++)
        if (writings[i].format == format)
            return &writings[i];
    return NULL;
}

bool chat_writes_calls(enum chat_format format) {
    return find_writing(format) != NULL;
}

json_t *chat_write_calls(enum chat_format format, const json_t *calls) {
    const struct writing *w = find_writing(format);
    BUG_ON(w == NULL);
    struct buf b = {0};
    const json_t *call;
    size_t i;
    buf_add_str(&b, w->begin);
    json_array_foreach(calls, i, call) {
        buf_add_str(&b, i == 0 ? "" : w->between);
        w->call(&b, json_object_get(call, "function"));
    }
    buf_add_str(&b, w->end);
    json_t *text = b.failed ? NULL : json_stringn(b.bytes, b.len);
    buf_free(&b);
    return text;
}
