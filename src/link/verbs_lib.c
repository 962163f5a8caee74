/* verbs_lib.c: Loads libibverbs at run time. */
#include "base/util.h" /* a file without RDMA headers is not empty either */

#if __has_include(<infiniband/verbs.h>)
#include "link/verbs_lib.h"

#include "base/program.h"
#include "link/verbs_system.h"

#include <dlfcn.h>
#include <pthread.h>

static struct verbs_lib lib;
static struct err problem;
static enum status loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *open_library(void) {
    static const char *const names[] = {"libibverbs.so.1", "/usr/lib/librdma.dylib"};
    const char *given = env_get("LOCKSTEP_IBVERBS");
    if (given != NULL)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    void *handle = NULL;
    for (size_t i = 0; i < ARRAY_LEN(names) && handle == NULL; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

#define SYMBOL(member) \
    { "ibv_" #member, (void **)&lib.member }

struct symbol {
    const char *name;
    void **to;
};

static void load_events(void *handle) {
    static const struct symbol symbols[] = {SYMBOL(create_comp_channel),
                                            SYMBOL(destroy_comp_channel), SYMBOL(get_cq_event),
                                            SYMBOL(ack_cq_events)};
    bool all = true;
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++)
        all &= (*symbols[i].to = dlsym(handle, symbols[i].name)) != NULL;
    for (size_t i = 0; !all && i < ARRAY_LEN(symbols); i++)
        *symbols[i].to = NULL;
}

static void load(void) {
    static const struct symbol symbols[] = {
        SYMBOL(get_device_list), SYMBOL(free_device_list), SYMBOL(get_device_name),
        SYMBOL(open_device),     SYMBOL(close_device),     SYMBOL(alloc_pd),
        SYMBOL(dealloc_pd),      SYMBOL(reg_mr),           SYMBOL(dereg_mr),
        SYMBOL(create_cq),       SYMBOL(destroy_cq),       SYMBOL(create_qp),
        SYMBOL(destroy_qp),      SYMBOL(modify_qp),        SYMBOL(query_qp),
        SYMBOL(query_port),      SYMBOL(query_gid),        SYMBOL(wc_status_str),
    };
    loaded = verbs_system_check(&problem);
    if (loaded != ST_OK)
        return;
    void *handle = open_library();
    loaded = handle != NULL
                 ? ST_OK
                 : err_set(&problem, ST_UNSUPPORTED, "no RDMA library: %s", dlerror());
    for (size_t i = 0; loaded == ST_OK && i < ARRAY_LEN(symbols); i++) {
        *symbols[i].to = dlsym(handle, symbols[i].name);
        if (*symbols[i].to == NULL)
            loaded = err_set(&problem, ST_UNSUPPORTED, "the RDMA library has no %s",
                             symbols[i].name);
    }
    if (loaded == ST_OK)
        load_events(handle);
}

enum status verbs_lib_get(const struct verbs_lib **out, struct err *err) {
    pthread_once(&once, load);
    if (loaded != ST_OK)
        return err_set(err, loaded, "%s", problem.text);
    *out = &lib;
    return ST_OK;
}
#endif
