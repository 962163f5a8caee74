/* machine_facts.c: asks the system for a machine's processor, memory, load and disk. */
#include "cluster/machine_facts.h"

#include "base/machine.h"
#include "base/mem.h"
#include "base/processor.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <sys/statvfs.h>

static json_t *disk_free(const char *folder) {
    struct statvfs disk;
    if (folder == NULL || statvfs(folder, &disk) != 0)
        return json_null();
    return json_integer((json_int_t)disk.f_bavail * (json_int_t)disk.f_frsize);
}

static json_t *load(void) {
    double of_a_minute;
    return getloadavg(&of_a_minute, 1) == 1 ? json_real(of_a_minute) : json_null();
}

json_t *machine_facts(const char *folder) {
    const struct kernels *k;
    struct err ignored;
    char name[128];
    processor_name(name, sizeof name);
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:o, s:o}", "processor", name, "isa",
                     kernels_select(&k, &ignored) == ST_OK ? k->name : "", "cores",
                     machine_n_cores(), "memory", (json_int_t)mem_total(), "memory_free",
                     (json_int_t)mem_available(), "load", load(), "disk_free",
                     disk_free(folder));
}
