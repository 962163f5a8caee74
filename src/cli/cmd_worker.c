/* cmd_worker.c: lockstep worker: a rank other than 0; started by rank 0, not by people. */
#include "cli/cli.h"
#include "lockstep/lockstep.h"

int cmd_worker(int argc, char **argv) {
    return lockstep_worker_main(argc, argv);
}
