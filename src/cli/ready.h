/* ready.h: a command that serves reports to its starter that it is ready, as data. So no
 * program has to look for a sentence in its output. Both ways may be used at once.
 *
 *   --ready-fd N     one line of JSON is written to descriptor N, which is then closed:
 *                    {"port": 8080, "address": "127.0.0.1", "url": "http://127.0.0.1:8080", ...}.
 *                    A command that fails before it is ready closes it without a line.
 *   NOTIFY_SOCKET    systemd's sd_notify protocol, Type=notify: READY=1 when it is ready,
 *                    STOPPING=1 when it begins to end. Without libsystemd. Unix sockets only.
 *
 * The processes that the command starts inherit neither. One per process; for the main thread.
 */
#ifndef LOCKSTEP_CLI_READY_H
#define LOCKSTEP_CLI_READY_H

#include "cli/cli.h"

/* --ready-fd, for CLI_INCLUDE. */
extern const struct cli_option ready_options[];

/* Before the first thread and the first child. ST_BAD_INPUT: --ready-fd names no open descriptor
 * that can be written. */
enum status ready_begin(struct err *err);
/* Reports that the command is ready; takes line over. ST_IO: the line cannot be written to
 * --ready-fd; ST_NO_MEMORY. It is not an error if a service manager does not listen. */
enum status ready_say(json_t *line, struct err *err);
/* It begins to end. */
void ready_say_stopping(void);

#endif
