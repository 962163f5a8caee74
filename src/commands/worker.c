/* worker.c: lockstep worker: a rank other than 0. Rank 0 or a node starts it, not people. */
#include "ranks/worker.h"
#include "base/program.h"
#include "cli/cli.h"
#include "cli/nodes.h"
#include "cluster/source.h"

static struct identity identity; /* of this user's cluster, while a source is open */

static enum status open_source(struct file_source *out, const char *address, struct err *err) {
    TRY(nodes_identity(&identity, err));
    enum status st = source_open(out, &identity, address, err);
    if (st != ST_OK)
        identity_deinit(&identity);
    return st;
}

static void close_source(struct file_source *s) {
    source_close(s);
    identity_deinit(&identity);
}

int cmd_worker(int argc, char **argv) {
    static const struct worker_sources sources = {open_source, close_source};
    program_confine();
    return worker_main(argc, argv, &sources);
}
