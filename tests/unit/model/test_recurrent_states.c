/* States of recurrent layers: their memory, and the sentence where there is not enough. */
#include "model/recurrent_states.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void slots_are_zero_and_apart(void **state) {
    (void)state;
    struct recurrent_states s;
    struct err err = {.text = ""};
    assert_int_equal(recurrent_states_open(&s, 3 * sizeof(float), 4, &err), ST_OK);
    assert_int_equal(s.n_slots, 4);
    assert_int_equal(s.slot_floats, 3);
    assert_int_equal(s.data_bytes, 12 * sizeof(float));
    for (size_t i = 0; i < 12; i++)
        assert_true(s.data[i] == 0);
    recurrent_states_close(&s);
    assert_null(s.data);
    assert_int_equal(recurrent_states_open(&s, 0, 4, &err),
                     ST_OK); /* a rank without such layers */
    assert_null(s.data);
    recurrent_states_close(&s);
}

/* More than the machine has, and more than can be counted: what to do is said, nothing is left. */
static void states_that_do_not_fit(void **state) {
    (void)state;
    struct recurrent_states s = {0};
    struct err err = {.text = ""};
    if (mem_total() == 0)
        skip();
    assert_int_equal(recurrent_states_open(&s, (size_t)(mem_total() / 4), 5, &err),
                     ST_NO_MEMORY);
    assert_non_null(strstr(err.text, "no memory for 5 states of "));
    assert_non_null(strstr(err.text, "--parallel-requests"));
    assert_null(s.data);
    assert_int_equal(recurrent_states_open(&s, SIZE_MAX / 2, 5, &err), ST_NO_MEMORY);
    assert_string_equal(err.text, "such states do not fit the address space");
    assert_null(s.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_zero_and_apart),
        cmocka_unit_test(states_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
