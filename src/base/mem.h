/* mem.h: memory. Large blocks at load, nothing in a decode step.
 *
 * mem_huge_* is for weights, KV pages and step buffers: whole pages, huge ones where the system
 * has them, zeroed. mem_alloc & co. are malloc with a debug-build check: between
 * mem_forbid_begin() and mem_forbid_end() on a thread, any allocation through this header is
 * a bug (BUG_ON) in builds with LOCKSTEP_DEBUG_ALLOC; in release the pair costs nothing. */
#ifndef LOCKSTEP_BASE_MEM_H
#define LOCKSTEP_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed, page-aligned; NULL if the system says no. Free with mem_huge_free(p, the same size). */
void *mem_huge_alloc(size_t size_bytes);
void mem_huge_free(void *p, size_t size_bytes);
/* Makes a part of such a block resident, as writing to it would, but changes nothing in it; others
 * may use it meanwhile. False: the system cannot. */
bool mem_populate(void *p, size_t size_bytes);

/* malloc/calloc/realloc/strdup, counted. n * size is checked. NULL when there is no memory. */
void *mem_alloc(size_t size_bytes);
void *mem_calloc(size_t n, size_t size_bytes);
void *mem_realloc(void *p, size_t size_bytes);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
void mem_free(void *p); /* free(); NULL is fine */

/* Gives free memory of the heap back to the system, after something large; takes milliseconds. One
 * file per system. */
void mem_give_back(void);

/* Room for n elements in a growing array, where *cap fit now. array: the address of the pointer to
 * them, of whatever type, NULL at first; mem_free() them. An array that is too small at least
 * doubles. False, with nothing changed: no memory. */
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

/* Bytes that this machine can still give to processes like this one: what is free or only caches
 * files, within the limits of the cgroup that they run in. 0: unknown. One file per system. */
uint64_t mem_available(void);

/* Bytes that this machine has for processes like this one, within those limits, however much is
 * taken. 0: unknown. One file per system. */
uint64_t mem_total(void);

/* Linux only: what the limits of cgroups leave, files' pages not counted, and the least of these
 * limits; UINT64_MAX: there is none. root: where the hierarchies are ("/sys/fs/cgroup"); groups: the
 * file that names those of this process. */
uint64_t mem_left_in_groups(const char *root, const char *groups);
uint64_t mem_limit_of_groups(const char *root, const char *groups);

#endif
