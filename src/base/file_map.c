/* file_map.c: Maps a model's files, and notices when one changes or is cut short. */
#include "base/file_map.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status map_fd(int fd, const char *path, struct file_map *out, struct err *err) {
    struct stat sb;
    if (fstat(fd, &sb) != 0)
        return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(sb.st_mode))
        return err_set(err, ST_BAD_INPUT, "%s: not a regular file", path);
    if (sb.st_size == 0)
        return err_set(err, ST_BAD_INPUT, "%s: not a model file: it is empty", path);
    size_t size = (size_t)sb.st_size;
    void *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return err_set(err, ST_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    *out = (struct file_map){.bytes = bytes, .size = size, .mapped = true};
    (void)file_id_of(fd, &out->id);
    return ST_OK;
}

enum status file_map_open(struct file_map *out, const char *path, struct err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
    if (fd < 0)
        return err_set(err, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                       strerror(errno));
    struct file_map m;
    enum status st = map_fd(fd, path, &m, err);
    close(fd);
    if (st != ST_OK)
        return st;
    m.path = mem_strdup(path);
    if (!m.path) {
        file_map_close(&m);
        return err_set(err, ST_NO_MEMORY, "%s: no memory", path);
    }
    *out = m;
    return ST_OK;
}

/* ---- guards ------------------------------------------------------------------------------ */

#define GUARDS_MAX 4096

/* begin: claimed with compare and exchange, 0 means free. end is written before the map is
 * read, and the handler runs on a thread that reads it. */
static struct guard {
    atomic_uintptr_t begin, end;
    atomic_bool is_torn;
} guards[GUARDS_MAX];

static struct guard *guard_of(uintptr_t at) {
    for (int i = 0; i < GUARDS_MAX; i++)
        if (at >= atomic_load(&guards[i].begin) && at < atomic_load(&guards[i].end))
            return &guards[i];
    return NULL;
}

/* Puts a page of zeros there, and the instruction runs again. */
static void on_bus_error(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct guard *g = guard_of(at);
    int before = errno;
    (void)context;
    if (g != NULL && mmap((void *)(at / page * page), page, PROT_READ,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        atomic_store(&g->is_torn, true);
    else
        signal(number, SIG_DFL);
    errno = before;
}

void file_map_catch(void) {
    struct sigaction act = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}

void file_map_guard(struct file_map *m) {
    uintptr_t begin = (uintptr_t)m->bytes, none;
    for (int i = 0; i < GUARDS_MAX && m->mapped && m->guard == 0; i++) {
        none = 0;
        if (!atomic_compare_exchange_strong(&guards[i].begin, &none, begin))
            continue;
        atomic_store(&guards[i].is_torn, false);
        atomic_store(&guards[i].end, begin + m->size);
        m->guard = i + 1;
    }
}

static void unguard(struct file_map *m) {
    if (m->guard == 0)
        return;
    atomic_store(&guards[m->guard - 1].end, 0);
    atomic_store(&guards[m->guard - 1].begin, 0);
}

bool file_map_is_intact(const struct file_map *m) {
    struct file_id now;
    if (m->guard != 0 && atomic_load(&guards[m->guard - 1].is_torn))
        return false;
    if (!m->mapped || !file_id_at(m->path, &now) || now.device != m->id.device ||
        now.number != m->id.number)
        return true;
    return file_id_same_data(&now, &m->id);
}

void file_map_close(struct file_map *m) {
    unguard(m);
    if (m->mapped)
        munmap((void *)m->bytes, m->size);
    mem_free(m->path);
    *m = (struct file_map){0};
}
