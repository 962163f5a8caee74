/* shm_segment.h: memory shared by two processes of one host, with no name or only a short-lived
 * one. Nothing is left behind when a process is killed. One file per system. */
#ifndef LOCKSTEP_LINK_SHM_SEGMENT_H
#define LOCKSTEP_LINK_SHM_SEGMENT_H

#include "base/status.h"

#define SHM_NAME_BYTES 48

struct shm_segment {
    void *base;
    size_t size_bytes;
    int fd; /* the creator's, until shm_segment_hide(); -1 otherwise */
    char name[SHM_NAME_BYTES];
};

/* Zeroed. `name` is for shm_segment_attach() in the other process. */
enum status shm_segment_create(struct shm_segment *s, size_t size_bytes, struct err *err);
enum status shm_segment_attach(struct shm_segment *s, const char *name, size_t size_bytes,
                               struct err *err);
/* From now on no process can attach. */
void shm_segment_hide(struct shm_segment *s);
void shm_segment_close(struct shm_segment *s);

#endif
