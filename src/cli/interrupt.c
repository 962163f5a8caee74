/* interrupt.c: Ctrl-C and SIGTERM, for commands that shut down in an orderly way. */
#include "cli/cli.h"

#include <signal.h>
#include <stdatomic.h>

/* Written before the handler is installed, read by it. */
static void (*volatile interrupt_fn)(void *arg);
static void *volatile interrupt_arg;
static volatile sig_atomic_t interrupts_end = 1;
static atomic_int interrupt_came; /* the signal's number */

static void on_signal(int number) {
    int before = atomic_load(&interrupt_came);
    if (before == SIGTERM || (before != 0 && interrupts_end)) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    atomic_store(&interrupt_came, number);
    interrupt_fn(interrupt_arg);
}

void cli_on_interrupt(void (*fn)(void *arg), void *arg) {
    struct sigaction act = {.sa_handler = fn != NULL ? on_signal : SIG_DFL};
    sigemptyset(&act.sa_mask);
    sigaddset(&act.sa_mask, SIGINT);
    sigaddset(&act.sa_mask, SIGTERM);
    if (fn != NULL) {
        interrupt_fn = fn;
        interrupt_arg = arg;
        interrupt_came = 0;
    }
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

void cli_outlive_interrupts(void) {
    interrupts_end = 0;
}

int cli_interrupted(void) {
    return interrupt_came;
}

int cli_take_interrupt(void) {
    return atomic_exchange(&interrupt_came, 0);
}
