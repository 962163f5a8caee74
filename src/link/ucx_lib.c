/* ucx_lib.c: Loads OpenUCX at run time. */
#include "base/util.h" /* a file without UCX headers is not empty either */

#if defined(LOCKSTEP_HAS_UCX)
#include "link/ucx_lib.h"

#include "base/program.h"

#include <dlfcn.h>
#include <pthread.h>

static struct ucx_lib lib;
static struct err problem;
static enum status loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* UCX reads these when it is loaded. A library must neither print nor take the process's
 * signals, and a slot must fit one segment of UCX's shared memory. Values that the user has set
 * stay. */
static void set_defaults(void) {
    setenv("UCX_POSIX_SEG_SIZE", "36864", 0);
    setenv("UCX_SYSV_SEG_SIZE", "36864", 0);
    setenv("UCX_LOG_LEVEL", "fatal", 0);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
    setenv("UCX_HANDLE_ERRORS", "none", 0);
    setenv("UCX_ERROR_SIGNALS", "", 0);
    setenv("UCX_VFS_ENABLE", "n", 0);
}

static void load(void) {
    static const struct {
        const char *name;
        void **to;
    } symbols[] = {
#define X(name) {#name, (void **)&lib.name},
        UCX_SYMBOLS(X)
#undef X
    };
    const char *given = env_get("LOCKSTEP_UCP");
    set_defaults();
    void *handle = dlopen(given != NULL ? given : "libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    loaded = handle != NULL
                 ? ST_OK
                 : err_set(&problem, ST_UNSUPPORTED, "no UCX library: %s", dlerror());
    for (size_t i = 0; loaded == ST_OK && i < ARRAY_LEN(symbols); i++) {
        *symbols[i].to = dlsym(handle, symbols[i].name);
        if (*symbols[i].to == NULL)
            loaded =
                err_set(&problem, ST_UNSUPPORTED, "the UCX library has no %s", symbols[i].name);
    }
}

enum status ucx_lib_get(const struct ucx_lib **out, struct err *err) {
    pthread_once(&once, load);
    if (loaded != ST_OK)
        return err_set(err, loaded, "%s", problem.text);
    *out = &lib;
    return ST_OK;
}
#endif
