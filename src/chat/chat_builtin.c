/* chat_builtin.c: the built-in templates. Their formats are those of the models' cards: ChatML
 * (Qwen, with Hermes' tool calls), Llama 2 and 3, Mistral v3, Gemma, DeepSeek V3, Phi 3. */
#include "chat/chat_builtin.h"

#include "base/util.h"

static const char chatml[] =
    "{%- if tools %}\n"
    "{{- '<|im_start|>system\\n' }}\n"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}\n"
    "{{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n"
    "You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}\n"
    "{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}\n"
    "{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and "
    "arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{\"name\": "
    "<function-name>, \"arguments\": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}\n"
    "{%- elif messages[0].role == 'system' %}\n"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' and loop.first %}\n"
    "{%- elif message.role == 'tool' %}\n"
    "{%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}"
    "{%- endif %}\n"
    "{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}\n"
    "{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}\n"
    "{%- else %}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}\n"
    "{%- for call in message.tool_calls or [] %}\n"
    "{{- '\\n' if message.content or not loop.first }}\n"
    "{{- '<tool_call>\\n{\"name\": ' + (call.function.name | tojson) + ', \"arguments\": ' +\n"
    "    (call.function.arguments if call.function.arguments is string else\n"
    "     call.function.arguments | tojson) + '}\\n</tool_call>' }}\n"
    "{%- endfor %}\n"
    "{{- '<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

static const char llama2[] =
    "{%- set ns = namespace(system='') %}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' %}\n"
    "{%- set ns.system = '<<SYS>>\\n' + message.content + '\\n<</SYS>>\\n\\n' %}\n"
    "{%- elif message.role == 'assistant' %}\n"
    "{{- ' ' + message.content.strip() + ' ' + eos_token }}\n"
    "{%- else %}\n"
    "{{- bos_token + '[INST] ' + ns.system + message.content.strip() + ' [/INST]' }}\n"
    "{%- set ns.system = '' %}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n";

static const char llama3[] =
    "{{- bos_token }}\n"
    "{%- if tools and messages[0].role != 'system' %}\n"
    "{%- set messages = [{'role': 'system', 'content': ''}] + messages %}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "{%- set role = 'ipython' if message.role == 'tool' else message.role %}\n"
    "{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}\n"
    "{%- if message.tool_calls %}\n"
    "{%- set call = message.tool_calls[0].function %}\n"
    "{{- '{\"name\": ' + (call.name | tojson) + ', \"parameters\": ' +\n"
    "    (call.arguments if call.arguments is string else call.arguments | tojson) + '}' }}\n"
    "{%- else %}\n"
    "{{- message.content | trim }}\n"
    "{%- endif %}\n"
    "{%- if tools and loop.first %}\n"
    "{{- '\\n\\nYou have access to the following functions. To call a function, respond with "
    "JSON in the format {\"name\": function name, \"parameters\": dictionary of argument name "
    "and its value} and nothing else.\\n\\n' }}\n"
    "{%- for tool in tools %}{{- (tool | tojson(indent=4)) + '\\n\\n' }}{%- endfor %}\n"
    "{%- endif %}\n"
    "{{- '<|eot_id|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"
    "{%- endif %}\n";

static const char mistral[] =
    "{{- bos_token }}\n"
    "{%- set ns = namespace(system='') %}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' %}\n"
    "{%- set ns.system = message.content + '\\n\\n' %}\n"
    "{%- elif message.role == 'tool' %}\n"
    "{{- '[TOOL_RESULTS]{\"content\": ' + (message.content | tojson) + '}[/TOOL_RESULTS]' }}\n"
    "{%- elif message.tool_calls %}\n"
    "{{- '[TOOL_CALLS][' }}\n"
    "{%- for call in message.tool_calls %}\n"
    "{{- '{\"name\": ' + (call.function.name | tojson) + ', \"arguments\": ' +\n"
    "    (call.function.arguments if call.function.arguments is string else\n"
    "     call.function.arguments | tojson) + '}' + ('' if loop.last else ', ') }}\n"
    "{%- endfor %}\n"
    "{{- ']' + eos_token }}\n"
    "{%- elif message.role == 'assistant' %}\n"
    "{{- ' ' + message.content + eos_token }}\n"
    "{%- else %}\n"
    "{%- if tools and loop.last %}\n"
    "{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}\n"
    "{%- endif %}\n"
    "{{- '[INST] ' + ns.system + message.content + '[/INST]' }}\n"
    "{%- set ns.system = '' %}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n";

static const char gemma[] =
    "{{- bos_token }}\n"
    "{%- set ns = namespace(system='') %}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' %}\n"
    "{%- set ns.system = message.content + '\\n\\n' %}\n"
    "{%- else %}\n"
    "{%- set role = 'model' if message.role == 'assistant' else 'user' %}\n"
    "{{- '<start_of_turn>' + role + '\\n' + ns.system + message.content | trim +\n"
    "    '<end_of_turn>\\n' }}\n"
    "{%- set ns.system = '' %}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}\n";

static const char deepseek[] =
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' %}\n"
    "{{- message.content }}\n"
    "{%- elif message.role == 'assistant' %}\n"
    "{{- '<｜Assistant｜>' + message.content + '<｜end▁of▁sentence｜>' }}\n"
    "{%- else %}\n"
    "{{- '<｜User｜>' + message.content }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %}\n";

static const char phi3[] =
    "{%- for message in messages %}\n"
    "{{- '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}\n";

static const struct chat_builtin builtins[] = {
    {"chatml", "<|im_start|>", chatml},
    {"llama3", "<|start_header_id|>", llama3},
    {"gemma", "<start_of_turn>", gemma},
    {"deepseek", "<｜User｜>", deepseek},
    {"mistral", "[INST]", mistral},
    {"phi3", "<|assistant|>", phi3},
    {"llama2", NULL, llama2},
};

/* Llama 2 has no telltale token: its 32000 pieces (and a few added ones) are the mark. */
static bool is_llama2(const struct tokenizer *t) {
    const struct tokenizer_facts *f = tokenizer_facts(t);
    return str_eq(f->model, "llama") && f->n_tokens >= 32000 && f->n_tokens < 32064;
}

const struct chat_builtin *chat_builtin_choose(const struct tokenizer *t) {
    for (size_t i = 0; i < ARRAY_LEN(builtins); i++) {
        const char *telltale = builtins[i].telltale;
        if (telltale != NULL && tokenizer_find(t, telltale, strlen(telltale)) != TOKEN_NONE)
            return &builtins[i];
    }
    return chat_builtin_find(is_llama2(t) ? "llama2" : "chatml");
}

const struct chat_builtin *chat_builtin_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(builtins); i++)
        if (str_eq(builtins[i].name, name))
            return &builtins[i];
    return NULL;
}
