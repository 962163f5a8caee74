/* Chat templates: every case of golden/chat-templates (rendered there by jinja2 as transformers
 * sets it up); the semantics one by one, whose expected texts in template_semantics.json
 * were rendered by jinja2; what is refused, and how soon. */
#include "base/mem.h"
#include "base/util.h"
#include "format/gguf.h"
#include "jinja/template.h"

#include "fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

static const struct template_clock golden_clock = {2024, 11, 20, 9, 8, 7};

static enum status render_source(const char *source, size_t len, const json_t *vars,
                                 char **text, size_t *n, struct err *err) {
    struct template *t;
    enum status st = template_compile(&t, source, len, err);
    if (st != ST_OK)
        return st;
    st = template_render(t, vars, &golden_clock, text, n, err);
    template_close(t);
    return st;
}

/* ---- golden --------------------------------------------------------------------------------- */

static json_t *load_golden(const char *name) {
    json_error_t e;
    json_t *j = json_load_file(golden_path(name), 0, &e);
    assert_non_null(j);
    return j;
}

static json_t *case_variables(const json_t *conversation, const json_t *file) {
    json_t *vars = json_copy((json_t *)conversation);
    json_object_set(vars, "bos_token", json_object_get(file, "bos_token"));
    json_object_set(vars, "eos_token", json_object_get(file, "eos_token"));
    if (json_object_get(vars, "tools") == NULL)
        json_object_set_new(vars, "tools", json_null());
    return vars;
}

/* Whether the case came out as it should; says so if not. */
static bool check_case(const struct template *t, const json_t *file, const json_t *item,
                       const json_t *conversation) {
    const json_t *expected = json_object_get(item, "expected");
    const char *error = json_string_value(json_object_get(item, "expected_error"));
    const char *kind = json_string_value(json_object_get(item, "error_kind"));
    json_t *vars = case_variables(conversation, file);
    char *text = NULL;
    size_t len = 0;
    struct err err = {.text = ""};
    enum status st = template_render(t, vars, &golden_clock, &text, &len, &err);
    bool ok = true;
    if (expected != NULL)
        ok = st == ST_OK && len == json_string_length(expected) &&
             memcmp(text, json_string_value(expected), len) == 0;
    else if (str_eq(kind, "raised by the template"))
        ok = st == ST_BAD_INPUT && str_eq(err.text, error);
    if (!ok)
        print_message("%s, %s:\n  expected %s\n  got %s\n",
                      json_string_value(json_object_get(file, "template")),
                      json_string_value(json_object_get(item, "conversation")),
                      expected != NULL ? json_string_value(expected) : error,
                      st == ST_OK ? text : err.text);
    if (st == ST_OK)
        mem_free(text);
    json_decref(vars);
    return ok;
}

static size_t check_file(const char *name, const json_t *conversations, size_t *n_wrong) {
    char path[512];
    snprintf(path, sizeof path, "chat-templates/expected/%s", name);
    json_t *file = load_golden(path), *cases = json_object_get(file, "cases"), *item;
    snprintf(path, sizeof path, "chat-templates/%s",
             json_string_value(json_object_get(file, "template")));
    size_t len = 0, i;
    char *source = (char *)read_whole(golden_path(path), &len);
    struct template *t = NULL;
    struct err err = {.text = ""};
    assert_non_null(source);
    enum status st = template_compile(&t, source, len, &err);
    free(source);
    if (st != ST_OK)
        print_message("%s: %s\n", name, err.text);
    json_array_foreach(cases, i, item) {
        const char *conversation = json_string_value(json_object_get(item, "conversation"));
        *n_wrong += st != ST_OK ||
                    !check_case(t, file, item, json_object_get(conversations, conversation));
    }
    if (st == ST_OK)
        template_close(t);
    json_decref(file);
    return i;
}

static void every_golden_case_is_equal(void **state) {
    (void)state;
    json_t *conversations = load_golden("chat-templates/conversations.json");
    DIR *dir = opendir(golden_path("chat-templates/expected"));
    size_t n = 0, n_wrong = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.')
            n += check_file(e->d_name, conversations, &n_wrong);
    closedir(dir);
    json_decref(conversations);
    print_message("%zu cases, %zu wrong\n", n, n_wrong);
    assert_int_equal(n_wrong, 0);
    assert_true(n >= 693);
}

/* ---- semantics --------------------------------------------------------------------------- */

static bool check_semantics(const json_t *item, const json_t *vars) {
    const json_t *source = json_object_get(item, "template");
    const json_t *expected = json_object_get(item, "expected");
    char *text = NULL;
    size_t len = 0;
    struct err err = {.text = ""};
    enum status st = render_source(json_string_value(source), json_string_length(source), vars,
                                   &text, &len, &err);
    bool ok;
    if (expected != NULL)
        ok = st == ST_OK && len == json_string_length(expected) &&
             memcmp(text, json_string_value(expected), len) == 0;
    else
        ok = st != ST_OK &&
             strstr(err.text, json_string_value(json_object_get(item, "error"))) != NULL;
    if (!ok)
        print_message("%s\n  expected %s\n  got %s\n", json_string_value(source),
                      json_string_value(expected), st == ST_OK ? text : err.text);
    mem_free(text);
    return ok;
}

static void semantics_are_those_of_jinja(void **state) {
    (void)state;
    json_error_t e;
    json_t *file = json_load_file(SOURCE_DIR "/tests/unit/jinja/template_semantics.json",
                                  JSON_ALLOW_NUL, &e);
    assert_non_null(file);
    const json_t *vars = json_object_get(file, "variables"), *item;
    size_t i, n_wrong = 0;
    json_array_foreach(json_object_get(file, "cases"), i, item) {
        n_wrong += !check_semantics(item, vars);
    }
    assert_int_equal(n_wrong, 0);
    assert_true(i >= 191);
    json_decref(file);
}

/* Processor time: a busy machine must not fail the test. */
static double cpu_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- errors ------------------------------------------------------------------------------ */

static void assert_refused(const char *source, enum status expected, const char *sentence) {
    json_t *vars = json_object();
    char *text = NULL;
    size_t len;
    struct err err = {.text = ""};
    double begin = cpu_s();
    enum status st = render_source(source, strlen(source), vars, &text, &len, &err);
    double took = cpu_s() - begin;
    if (st != expected || strstr(err.text, sentence) == NULL || took > 20)
        print_message("%.200s: %s: %s (%.1f s)\n", source, status_name(st), err.text, took);
    assert_int_equal(st, expected);
    assert_non_null(strstr(err.text, sentence));
    assert_true(took < 20); /* under sanitizers; else a second or two */
    json_decref(vars);
}

static void errors_name_the_line(void **state) {
    (void)state;
    assert_refused("a\n{% if %}", ST_BAD_INPUT, "template line 2: unexpected end of a tag");
    assert_refused("\r\n\r\n{{ 1 + }}", ST_BAD_INPUT, "template line 3: ");
    assert_refused("{% if x %}\n", ST_BAD_INPUT, "unexpected end of the template");
    assert_refused("{{ 'a\n", ST_BAD_INPUT, "template line 1: a string without an end");
    assert_refused("\n{{ 1", ST_BAD_INPUT, "template line 2: a tag without an end");
    assert_refused("{# x", ST_BAD_INPUT, "missing end of comment");
    assert_refused("{% raw %} x", ST_BAD_INPUT, "missing end of raw");
    assert_refused("{% endif %}", ST_BAD_INPUT, "unknown or misplaced tag 'endif'");
    assert_refused("{% frob %}", ST_BAD_INPUT, "unknown or misplaced tag 'frob'");
    assert_refused("{% break %}", ST_BAD_INPUT, "outside of a loop");
    assert_refused("{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
                   ST_BAD_INPUT, "outside of a loop");
    assert_refused("{{ 99999999999999999999 }}", ST_UNSUPPORTED, "63 bits");
    assert_refused("{{ 9223372036854775807 + 1 }}", ST_UNSUPPORTED, "63 bits");
    assert_refused("x\n\xff", ST_BAD_INPUT, "template line 2: invalid UTF-8");
    assert_refused("{{ $ }}", ST_BAD_INPUT, "unexpected character '$'");
    assert_refused("{{ '\\u12' }}", ST_BAD_INPUT, "truncated");
    assert_refused("{{ 'odd\\x00' is test }}{{ x.y }}", ST_BAD_INPUT, "'x' is undefined");
    assert_refused("{{ 'a'['upper\\x00']() }}", ST_BAD_INPUT, "has no attribute 'upper\\x00'");
    assert_refused("\n\n{{ a.b }}", ST_BAD_INPUT, "template line 3: 'a' is undefined");
    assert_refused("{{ 1|frob }}", ST_UNSUPPORTED, "No filter named 'frob'");
}

static void a_raised_message_stands_alone(void **state) {
    (void)state;
    json_t *vars = json_object();
    char *text;
    size_t len;
    struct err err;
    const char source[] = "\n{{ raise_exception('Roles must alternate: 100% ' ~ 1) }}";
    assert_int_equal(render_source(source, sizeof source - 1, vars, &text, &len, &err),
                     ST_BAD_INPUT);
    assert_string_equal(err.text, "Roles must alternate: 100% 1");
    json_decref(vars);
}

/* ---- limits ------------------------------------------------------------------------------ */

static void hostile_templates_end(void **state) {
    (void)state;
    static const struct {
        const char *source, *sentence;
    } cases[] = {
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
         ""},
        {"{% set ns = namespace(s='xxxxxxxxxxxx') %}{% for a in range(100000) %}"
         "{% set ns.s = ns.s + ns.s %}{% endfor %}",
         "too much memory"},
        {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "recursion"},
        {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recursion"},
        {"{{ 'x' * 100000000000 }}", "too long a text"},
        {"{{ '%10001d' % 1 }}", ""},
        {"{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}", "recursion"},
        {"{% set l = [1] %}{% set _ = l.append(l) %}{{ l|tojson }}", "recursion"},
        {"{% set l = [1] %}{% set _ = l.append(l) %}{% set k = [1] %}"
         "{% set _ = k.append(k) %}{{ l == k }}",
         "recursion"},
        {"{% set d = {} %}{% set _ = d.update({'a': d}) %}{{ d == d.copy() }}{{ d }}",
         "recursion"},
        {"{% set l = [1] %}{% for x in l %}{% set _ = l.append(1) %}{% endfor %}", ""},
        {"{% set l = [1] %}{% for x in l if l.append(1) or true %}{% endfor %}", ""},
        {"{% set l = [1] %}{% for x in l if l.append(1) %}{{ x }}{% endfor %}", ""},
        {"{% set l = [1] %}{% for x in l if l.append(1) or true %}{{ loop.last }}{{ loop.length }}"
         "{% endfor %}",
         ""},
        {"{% for x in [1] if x recursive %}{{ loop.last }}{{ loop([1]) }}{% endfor %}",
         "recursion"},
        {"{% set l = range(100000)|list %}{% for a in range(100000) %}{{ a in l }}{% endfor %}",
         "too long"},
        {"{% set s = 'abcdefgh' * 100000 %}{% for a in range(100000) %}{{ s[700000] }}"
         "{% endfor %}",
         "too long"},
        {"{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{{ s.rsplit('b')|length }}"
         "{{ s|upper|length }}{% endfor %}",
         "too long"},
        {"{% for i in range(1000) %}{% set x = range(100000)|list|sort %}{% endfor %}", ""},
        {"{{ [1]|map('map', 'map', 'map', 'map')|list }}", ""},
        {"{{ range(1000000000) }}", "Range too big"},
        {"{{ strftime_now('%c' * 100) }}{{ strftime_now('%c' * 1000) }}", "strftime_now"},
        {"{{ (((((1)))))[::-9223372036854775807] }}{{ 'a'.x.y }}", ""},
        {"{{ -9223372036854775807 - 2 }}", "63 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "63 bits"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *vars = json_object();
        char *text;
        size_t len;
        struct err err = {.text = ""};
        double begin = cpu_s();
        enum status st =
            render_source(cases[i].source, strlen(cases[i].source), vars, &text, &len, &err);
        double took = cpu_s() - begin;
        if (st == ST_OK || strstr(err.text, cases[i].sentence) == NULL || took > 20)
            print_message("%s\n  %s (%.1f s)\n", cases[i].source, err.text, took);
        assert_int_not_equal(st, ST_OK);
        assert_non_null(strstr(err.text, cases[i].sentence));
        assert_true(took < 20);
        json_decref(vars);
    }
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *before, *open, *middle, *close, *after;
    } cases[] = {
        {"{{ ", "(", "1", ")", " }}"},
        {"{{ ", "[", "1", "]", " }}"},
        {"{{ ", "{'a':", "1", "}", " }}"},
        {"{{ ", "not ", "1", "", " }}"},
        {"{{ ", "- ", "1", "", " }}"},
        {"{{ a", "[a", "", "]", " }}"},
        {"{{ a", "(a", "", ")", " }}"},
        {"", "{% if 1 %}", "x", "{% endif %}", ""},
        {"{{ ", "1 if 1 else ", "1", "", " }}"},
        {"{{ 1", "+1", "", "", " }}"},
        {"{{ a", ".a", "", "", " }}"},
        {"{{ 1", "|list", "", "", " }}"},
        {"{% for ", "(", "x", ")", " in y %}{% endfor %}"},
    };
    enum { DEPTH = 20000 };
    char *source = malloc(DEPTH * 32);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *p = source + sprintf(source, "%s", cases[i].before);
        for (int k = 0; k < DEPTH; k++)
            p += sprintf(p, "%s", cases[i].open);
        p += sprintf(p, "%s", cases[i].middle);
        for (int k = 0; k < DEPTH; k++)
            p += sprintf(p, "%s", cases[i].close);
        sprintf(p, "%s", cases[i].after);
        json_t *vars = json_object();
        char *text;
        size_t len;
        struct err err = {.text = ""};
        assert_int_not_equal(render_source(source, strlen(source), vars, &text, &len, &err),
                             ST_OK);
        json_decref(vars);
    }
    free(source);
}

static void deep_variables_are_refused(void **state) {
    (void)state;
    json_t *vars = json_object(), *deep = json_array();
    for (int i = 0; i < 5000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    json_object_set_new(vars, "deep", deep);
    char *text;
    size_t len;
    struct err err;
    assert_int_equal(render_source("x", 1, vars, &text, &len, &err), ST_NO_MEMORY);
    assert_non_null(strstr(err.text, "recursion"));
    json_decref(vars);
}

/* The templates of hostile model files; their sentences come within a second. */
static void hostile_files_end(void **state) {
    (void)state;
    static const char *const names[] = {"endless", "recursion", "syntax"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "hostile/template-%s.gguf", names[i]);
        struct gguf *g;
        struct gguf_str source;
        struct err err;
        assert_int_equal(gguf_open(&g, golden_path(name), NULL, &err), ST_OK);
        assert_int_equal(gguf_str(g, "tokenizer.chat_template", &source, &err), ST_OK);
        json_t *vars =
            json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", "x");
        char *text = NULL;
        size_t len;
        double begin = cpu_s();
        enum status st = render_source(source.ptr, source.len, vars, &text, &len, &err);
        assert_int_not_equal(st, ST_OK);
        assert_true(cpu_s() - begin < 20);
        json_decref(vars);
        gguf_close(g);
    }
}

/* A loop of appends costs what it makes, not its square: 32 MB within the memory limit. */
static void appending_is_linear(void **state) {
    (void)state;
    const char source[] = "{% set ns = namespace(s='') %}{% set x = 'y' * 1000 %}"
                          "{% for a in range(32000) %}{% set ns.s = ns.s + x %}{% endfor %}"
                          "{{ ns.s }}";
    json_t *vars = json_object();
    char *text;
    size_t len;
    struct err err;
    assert_int_equal(render_source(source, sizeof source - 1, vars, &text, &len, &err), ST_OK);
    assert_int_equal(len, 32000000);
    mem_free(text);
    json_decref(vars);
}

/* ---- threads ----------------------------------------------------------------------------- */

struct shared_render {
    struct template *t;
    json_t *vars;
};

static void *render_many(void *arg) {
    const struct shared_render *s = arg;
    for (int i = 0; i < 50; i++) {
        char *text;
        size_t len;
        if (template_render(s->t, s->vars, &golden_clock, &text, &len, NULL) != ST_OK)
            return (void *)"failed";
        bool ok = str_eq(text, "[1, 2, 3]a2024");
        mem_free(text);
        if (!ok)
            return (void *)"differs";
    }
    return NULL;
}

static void renders_as(const char *source, const char *want) {
    struct template *t;
    struct err err = {.text = ""};
    char *text;
    size_t n;
    json_t *vars = json_object();
    assert_int_equal(template_compile(&t, source, strlen(source), &err), ST_OK);
    if (template_render(t, vars, NULL, &text, &n, &err) != ST_OK)
        fail_msg("%s: %s", source, err.text);
    assert_string_equal(text, want);
    mem_free(text);
    json_decref(vars);
    template_close(t);
}

/* Wherever the machine says that it is: this zone is 14 hours ahead. */
static void the_time_is_utc(void **state) {
    (void)state;
    char before[16], after[16], source[96];
    setenv("TZ", "XXX-14", 1);
    tzset();
    time_t now = time(NULL);
    strftime(before, sizeof before, "%d %H", gmtime(&now));
    now += 60; /* the hour may end meanwhile */
    strftime(after, sizeof after, "%d %H", gmtime(&now));
    snprintf(source, sizeof source, "{{ strftime_now('%%d %%H') in ['%s', '%s'] }}", before,
             after);
    renders_as(source, "True");
    unsetenv("TZ");
    tzset();
}

/* As Python 3.11 prints them. */
static void powers_are_our_own(void **state) {
    (void)state;
    renders_as("{{ 2 ** -2 }} {{ 10 ** -3 }} {{ 2.5 ** 3 }} {{ 2 ** 0.5 }} {{ 9 ** 0.5 }}",
               "0.25 0.001 15.625 1.4142135623730951 3.0");
    renders_as("{{ 0.0 ** 0 }} {{ (-2.0) ** 3 }} {{ 4.0 ** -0.5 }} {{ 1.5 ** 1.5 }}",
               "1.0 -8.0 0.5 1.8371173070873836");
    renders_as("{{ 1234.567|round(2) }} {{ 1234.567|round(-2) }} {{ 1.29|round(1, 'floor') }}",
               "1234.57 1200.0 1.2");
}

static void one_template_renders_on_many_threads(void **state) {
    (void)state;
    const char source[] = "{% set x = l|sort %}{{ x }}{% for m in d %}{{ m }}{% endfor %}"
                          "{{ strftime_now('%Y') }}";
    struct shared_render s = {.vars =
                                  json_pack("{s:[i,i,i], s:{s:i}}", "l", 3, 1, 2, "d", "a", 1)};
    struct err err;
    assert_int_equal(template_compile(&s.t, source, sizeof source - 1, &err), ST_OK);
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, &s), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        void *what;
        pthread_join(threads[i], &what);
        assert_null(what);
    }
    template_close(s.t);
    json_decref(s.vars);
}

int main(void) {
    golden_or_skip("chat-templates/conversations.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_case_is_equal),
        cmocka_unit_test(semantics_are_those_of_jinja),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(a_raised_message_stands_alone),
        cmocka_unit_test(hostile_templates_end),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(deep_variables_are_refused),
        cmocka_unit_test(hostile_files_end),
        cmocka_unit_test(appending_is_linear),
        cmocka_unit_test(the_time_is_utc),
        cmocka_unit_test(powers_are_our_own),
        cmocka_unit_test(one_template_renders_on_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
