/* template_tests.c: the tests that may follow `is`. */
#include "jinja/template_filters.h"

#define TEST(name, condition)                                                       \
    static struct value name(struct render *r, struct value v, struct call *call) { \
        (void)r;                                                                    \
        (void)call;                                                                 \
        return value_bool(condition);                                               \
    }

TEST(t_defined, v.kind != V_UNDEFINED)
TEST(t_undefined, v.kind == V_UNDEFINED)
TEST(t_none, v.kind == V_NONE)
TEST(t_boolean, v.kind == V_BOOL)
TEST(t_true, v.kind == V_BOOL && v.boolean)
TEST(t_false, v.kind == V_BOOL && !v.boolean)
TEST(t_integer, v.kind == V_INT)
TEST(t_float, v.kind == V_FLOAT)
TEST(t_number, is_number(v))
TEST(t_string, v.kind == V_STRING)
TEST(t_mapping, v.kind == V_DICT)
TEST(t_sequence,
     is_sequence(v) || v.kind == V_STRING || v.kind == V_DICT || v.kind == V_UNDEFINED)
TEST(t_iterable, is_sequence(v) || v.kind == V_STRING || v.kind == V_DICT ||
                     v.kind == V_UNDEFINED || v.kind == V_VIEW || v.kind == V_GENERATOR ||
                     v.kind == V_LOOP)
TEST(t_callable, v.kind >= V_LOOP)
TEST(t_escaped, v.kind == V_STRING && v.safe)
TEST(t_sameas, v.kind == call->arg[0].kind && value_equal(r, v, call->arg[0]))
TEST(t_eq, value_equal(r, v, call->arg[0]))
TEST(t_ne, !value_equal(r, v, call->arg[0]))
TEST(t_lt, value_compare(r, v, call->arg[0], "<") < 0)
TEST(t_le, value_compare(r, v, call->arg[0], "<=") <= 0)
TEST(t_gt, value_compare(r, v, call->arg[0], ">") > 0)
TEST(t_ge, value_compare(r, v, call->arg[0], ">=") >= 0)
TEST(t_in, value_contains(r, call->arg[0], v))
TEST(t_odd, (need_int(r, v) & 1) != 0)
TEST(t_even, (need_int(r, v) & 1) == 0)
TEST(t_lower, v.kind == V_STRING && v.len > 0 &&
                  value_equal(r, v, text_change_case(r, v, CASE_LOWER)) &&
                  !value_equal(r, v, text_change_case(r, v, CASE_UPPER)))
TEST(t_upper, v.kind == V_STRING && v.len > 0 &&
                  value_equal(r, v, text_change_case(r, v, CASE_UPPER)) &&
                  !value_equal(r, v, text_change_case(r, v, CASE_LOWER)))
TEST(t_filter, v.kind == V_STRING && filter_find(v.text, v.len) != NULL)

static struct value t_divisibleby(struct render *r, struct value v, struct call *call) {
    int64_t divisor = need_int(r, call->arg[0]);
    if (divisor == 0)
        render_fail(r, ST_BAD_INPUT, "integer modulo by zero");
    return value_bool(divisor == -1 || need_int(r, v) % divisor == 0);
}

static struct value t_test(struct render *r, struct value v, struct call *call) {
    (void)r;
    (void)call;
    return value_bool(v.kind == V_STRING && test_find(v.text, v.len) != NULL);
}

static const struct builtin tests[] = {
    {"defined", "", 0, t_defined},
    {"undefined", "", 0, t_undefined},
    {"none", "", 0, t_none},
    {"boolean", "", 0, t_boolean},
    {"true", "", 0, t_true},
    {"false", "", 0, t_false},
    {"integer", "", 0, t_integer},
    {"float", "", 0, t_float},
    {"number", "", 0, t_number},
    {"string", "", 0, t_string},
    {"mapping", "", 0, t_mapping},
    {"sequence", "", 0, t_sequence},
    {"iterable", "", 0, t_iterable},
    {"callable", "", 0, t_callable},
    {"escaped", "", 0, t_escaped},
    {"sameas", "other", 1, t_sameas},
    {"eq", "other", 1, t_eq},
    {"equalto", "other", 1, t_eq},
    {"==", "other", 1, t_eq},
    {"ne", "other", 1, t_ne},
    {"!=", "other", 1, t_ne},
    {"lt", "other", 1, t_lt},
    {"lessthan", "other", 1, t_lt},
    {"<", "other", 1, t_lt},
    {"le", "other", 1, t_le},
    {"<=", "other", 1, t_le},
    {"gt", "other", 1, t_gt},
    {"greaterthan", "other", 1, t_gt},
    {">", "other", 1, t_gt},
    {"ge", "other", 1, t_ge},
    {">=", "other", 1, t_ge},
    {"in", "seq", 1, t_in},
    {"odd", "", 0, t_odd},
    {"even", "", 0, t_even},
    {"divisibleby", "num", 1, t_divisibleby},
    {"lower", "", 0, t_lower},
    {"upper", "", 0, t_upper},
    {"filter", "", 0, t_filter},
    {"test", "", 0, t_test},
};

const struct builtin *test_find(const char *name, size_t len) {
    return builtin_find(tests, ARRAY_LEN(tests), name, len);
}
