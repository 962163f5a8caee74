/* bench_links.h: lockstep bench --compare-links: how the wire affects each way of splitting. */
#ifndef LOCKSTEP_COMMANDS_BENCH_LINKS_H
#define LOCKSTEP_COMMANDS_BENCH_LINKS_H

/* latencies: "300us,3us". Opens session_args.model on one rank. For each latency it also opens
 * it as pipeline and as tensor over --ranks (default 2) ranks of --threads (default 1) each.
 * Measures all in interleaved rounds. Prints a table, or JSON with --json. Returns the exit
 * status. */
int bench_links(const char *latencies, int n_prompt, int n_generate, int n_runs);

#endif
