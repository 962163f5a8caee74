/* mem.c: Aligned and huge allocations, and the debug check that a decode step allocates
 * nothing. */
#include "base/mem.h"

#include "base/status.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Thread_local int forbidden;

static void check_allowed(void) {
#ifdef LOCKSTEP_DEBUG_ALLOC
    BUG_ON(forbidden > 0);
#endif
}

#define HUGE_PAGE ((size_t)2 << 20)

static size_t whole_pages(size_t size_bytes) {
    return round_up(MAX(size_bytes, (size_t)1), (size_t)sysconf(_SC_PAGESIZE));
}

/* Below this a block is not compared with what the machine has. */
#define MUCH ((size_t)256 << 20)

/* Systems promise memory that they do not have, above all to a container, and end the process when
 * it writes there. */
static bool is_beyond_machine(size_t size_bytes) {
    uint64_t total = size_bytes >= MUCH ? mem_total() : 0;
    return total != 0 && size_bytes > total;
}

void *mem_huge_alloc(size_t size_bytes) {
    check_allowed();
    if (is_beyond_machine(size_bytes))
        return NULL;
    size_t size = whole_pages(size_bytes); /* munmap() refuses to begin inside a page */
    /* Map one huge page more and trim, so that the block starts on a huge-page boundary.
     * Otherwise its first and last 2 MiB would stay in small pages. */
    size_t slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *p =
        mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (slack != 0) {
        size_t head = (HUGE_PAGE - (size_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (head != 0)
            munmap(p, head);
        if (slack - head != 0)
            munmap(p + head + size, slack - head);
        p += head;
#ifdef MADV_HUGEPAGE
        madvise(p, size, MADV_HUGEPAGE);
#endif
    }
    return p;
}

void mem_huge_free(void *p, size_t size_bytes) {
    if (p != NULL)
        munmap(p, whole_pages(size_bytes));
}

bool mem_populate(void *p, size_t size_bytes) {
#ifdef MADV_POPULATE_WRITE
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)p % page;
    return madvise((char *)p - before, round_up(size_bytes + before, page),
                   MADV_POPULATE_WRITE) == 0;
#else
    (void)p;
    (void)size_bytes;
    return false;
#endif
}

void mem_discard(void *p, size_t size_bytes) {
#ifdef __linux__
    int how = MADV_DONTNEED;
#else
    int how = MADV_FREE; /* at once where the system needs it */
#endif
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = round_up((uintptr_t)p, page),
              end = ((uintptr_t)p + size_bytes) / page * page;
    if (begin < end)
        madvise((void *)begin, end - begin, how);
}

void *mem_alloc(size_t size_bytes) {
    check_allowed();
    return malloc(MAX(size_bytes, (size_t)1));
}

void *mem_calloc(size_t n, size_t size_bytes) {
    check_allowed();
    return calloc(MAX(n, (size_t)1), MAX(size_bytes, (size_t)1));
}

void *mem_realloc(void *p, size_t size_bytes) {
    check_allowed();
    return realloc(p, MAX(size_bytes, (size_t)1));
}

char *mem_strdup(const char *s) {
    return mem_strndup(s, strlen(s));
}

char *mem_strndup(const char *s, size_t n) {
    char *p = mem_alloc(n + 1);
    if (p == NULL)
        return NULL;
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

void mem_free(void *p) {
    free(p);
}

bool mem_reserve(void *array, size_t *cap, size_t n, size_t elem_bytes) {
    if (n <= *cap)
        return true;
    size_t more = MAX(MAX(n, 2 * *cap), (size_t)16), bytes;
    void *old, *grown;
    memcpy(&old, array, sizeof old); /* a struct x * is not a void * */
    if (!mul_size(more, elem_bytes, &bytes) || (grown = mem_realloc(old, bytes)) == NULL)
        return false;
    memcpy(array, &grown, sizeof grown);
    *cap = more;
    return true;
}

void mem_forbid_begin(void) {
    forbidden++;
}

void mem_forbid_end(void) {
    BUG_ON(forbidden <= 0);
    forbidden--;
}

#ifdef LOCKSTEP_DEBUG_ALLOC
/* Linked with -Wl,--wrap: also catches the plain calls of our objects. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n) {
    check_allowed();
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t m) {
    check_allowed();
    return __real_calloc(n, m);
}
void *__wrap_realloc(void *p, size_t n) {
    check_allowed();
    return __real_realloc(p, n);
}
#endif
