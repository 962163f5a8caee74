/* mem.h: memory allocation. Large blocks at load, nothing in a decode step.
 *
 * mem_huge_* is for weights, KV pages and step buffers: whole zeroed pages, huge ones if the
 * system has them. mem_alloc and its relatives are malloc with a check in debug builds. Between
 * mem_forbid_begin() and mem_forbid_end() on a thread, any allocation through this header is a
 * bug (BUG_ON) if LOCKSTEP_DEBUG_ALLOC is defined. In release builds the pair costs nothing. */
#ifndef LOCKSTEP_BASE_MEM_H
#define LOCKSTEP_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed, page-aligned; NULL if the system says no, or if it is more than mem_total(). Free with
 * mem_huge_free(p, the same size). */
void *mem_huge_alloc(size_t size_bytes);
void mem_huge_free(void *p, size_t size_bytes);
/* Makes a part of such a block resident, as writing to it would, but changes nothing in it; others
 * may use it meanwhile. False: the system cannot. */
bool mem_populate(void *p, size_t size_bytes);
/* Gives its whole pages back; what they hold from then on is of no meaning. */
void mem_discard(void *p, size_t size_bytes);

/* malloc/calloc/realloc/strdup, counted. n * size is checked for overflow. NULL: no memory. */
void *mem_alloc(size_t size_bytes);
void *mem_calloc(size_t n, size_t size_bytes);
void *mem_realloc(void *p, size_t size_bytes);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
void mem_free(void *p); /* free(); NULL is fine */

/* Gives free memory of the heap back to the system, after something large; takes milliseconds. One
 * file per system. */
void mem_give_back(void);

/* Makes space for n elements in a growing array of *cap elements. array: the address of the
 * pointer to them, of any type; NULL at first; free with mem_free(). An array that is too small
 * at least doubles. False: no memory, and nothing has changed. */
bool mem_reserve(void *array, size_t *cap, size_t n, size_t elem_bytes);

/* Nesting is allowed. Debug builds also catch plain malloc (linker --wrap). */
void mem_forbid_begin(void);
void mem_forbid_end(void);

/* Resident set of this process in bytes, split as the kernel does (macOS counts shared memory with
 * what has no file); 0 where unknown. One file per system. */
struct mem_resident {
    size_t anon_bytes;  /* heap, huge blocks */
    size_t file_bytes;  /* mapped files: page cache, reclaimable */
    size_t shmem_bytes; /* shared memory (the fabric's) */
};
struct mem_resident mem_resident(void);

/* Bytes that this machine can still give to processes like this one: free memory and file
 * caches, within the limits of this process's cgroup. 0: unknown. One file per system. */
uint64_t mem_available(void);

/* Bytes that this machine has for processes like this one, within those limits, however much is
 * taken. 0: unknown. One file per system. */
uint64_t mem_total(void);

/* Linux only: the smallest remainder of the cgroups' memory limits, where file pages do not
 * count as used. UINT64_MAX: no limit. root: the mount point of the hierarchies
 * ("/sys/fs/cgroup"). groups: the file that names this process's groups. */
uint64_t mem_left_in_groups(const char *root, const char *groups);
uint64_t mem_limit_of_groups(const char *root, const char *groups);

#endif
