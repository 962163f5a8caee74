/* log.h: messages of the CLI and the daemons on stderr. Library code returns errors instead. It
 * logs only events that no caller waits for (a background retry, a fallback that costs speed).
 *
 * Thread-safe: one write(2) per line. Levels: 0 errors, 1 warnings, 2 info (default), 3 debug.
 */
#ifndef LOCKSTEP_BASE_LOG_H
#define LOCKSTEP_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* LOCKSTEP_LOG=error|warn|info|debug in the environment sets the level at the first line;
 * another word there is info. */
bool log_knows(const char *level);
void log_set_level(enum log_level level);
/* A prefix for every line of this process, e.g. "rank 2"; copied, at most 31 characters. */
void log_set_name(const char *name);

__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *fmt, ...);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
