/* template.h: chat templates: the Jinja subset that models' files use.
 *
 * The dialect is Jinja2 as Hugging Face transformers configures it: trim_blocks and
 * lstrip_blocks on, no autoescape, break/continue, generation blocks, tojson without HTML
 * escapes, raise_exception and strftime_now. Lists may be changed (append, pop), as in the
 * plain sandbox. Values behave as Python's: str() of floats and lists, slices, methods of
 * strings, lists and dicts. Text is counted in code points.
 *
 * A compiled template is immutable: any number of threads may render it at once. Each render
 * has its own memory, freed at its end, and limits on steps, memory, output and depth. A
 * hostile template ends within about a second with a sentence. Nothing here blocks or does I/O.
 * A thread that compiles or renders needs 512 KiB of stack. */
#ifndef LOCKSTEP_JINJA_TEMPLATE_H
#define LOCKSTEP_JINJA_TEMPLATE_H

#include "base/status.h"

#include <jansson.h>
#include <stddef.h>

struct template;

/* What strftime_now() takes for the time. */
struct template_clock {
    int year, month, day;     /* 2024, 11 (1..12), 20 (1..31) */
    int hour, minute, second; /* UTC */
};

/* source is UTF-8, copied. ST_BAD_INPUT: a syntax error ("template line 12: ..."), or deeper
 * nesting than any template needs. ST_NO_MEMORY. */
enum status template_compile(struct template **out, const char *source, size_t len,
                             struct err *err);
void template_close(struct template *t); /* NULL is fine */

/* Renders with the members of vars as variables (a JSON object: messages, tools,
 * add_generation_prompt, bos_token, ...). Absent ones are undefined. vars is borrowed and must
 * not change meanwhile. now: NULL is the real time, in UTC.
 *
 * The caller owns *text (mem_free): NUL-terminated, *len bytes of UTF-8.
 *
 *   ST_BAD_INPUT    the template called raise_exception: the sentence is its message and nothing
 *                   else; or an error in the template ("template line 12: 'tool' is undefined")
 *   ST_UNSUPPORTED  a filter, test, function or statement outside the subset
 *   ST_NO_MEMORY    a limit was reached (the sentence says which), or there is no memory */
enum status template_render(const struct template *t, const json_t *vars,
                            const struct template_clock *now, char **text, size_t *len,
                            struct err *err);

#endif
