/* init_pid1.c: the duties of PID 1, for a command that is the only program of a container.
 *
 * The kernel gives PID 1 no signal without a handler, so neither Ctrl-C nor `docker stop` would
 * end a command. The kernel also makes PID 1 the parent of every orphaned process, and these
 * would stay as zombies. So the command runs in a child. PID 1 only forwards signals and reaps
 * children. It has no threads, since it forks before the first one is started. */
#include "base/init_pid1.h"

#ifdef __linux__
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

/* Reaps all that have ended. Is the command among them? */
static bool reap(pid_t command, int *exit_status) {
    int status;
    pid_t pid;
    bool ended = false;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == command) {
            *exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            ended = true;
        }
    return ended;
}

/* The command gets signals from the terminal (SI_KERNEL) itself: it is in the same group. */
static int look_after(pid_t command, const sigset_t *all) {
    siginfo_t signal;
    int exit_status = 0;
    while (!reap(command, &exit_status)) {
        int number = sigwaitinfo(all, &signal);
        if (number > 0 && number != SIGCHLD && signal.si_code != SI_KERNEL)
            kill(command, number);
    }
    return exit_status;
}

void init_pid1(void) {
    sigset_t all, before;
    if (getpid() != 1)
        return;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t command = fork();
    if (command > 0)
        _exit(look_after(command, &all));
    sigprocmask(SIG_SETMASK, &before, NULL); /* in the child, or there can be none */
}
#else
void init_pid1(void) {
}
#endif
