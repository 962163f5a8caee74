/* store.h: the models of one machine, as its node knows them: where one is, and how one comes
 * here from a machine that has it. */
#ifndef LOCKSTEP_CLUSTER_STORE_H
#define LOCKSTEP_CLUSTER_STORE_H

#include "cluster/identity.h"
#include "cluster/model_files.h"

#include <stdbool.h>

/* Where models are kept unless somebody says otherwise: lockstep/models in $XDG_DATA_HOME or
 * ~/.local/share. ST_NOT_FOUND: there is no home. */
enum status store_path(char *out, size_t size, struct err *err);

/* The same for another of a node's folders, which the option --WHAT names, too. */
enum status store_data_path(char *out, size_t size, const char *what, struct err *err);

/* Looks for this very model: at `hint` (a path, where it is on the machine that asks; may be
 * NULL), in the store under its name, and where store_fetch() would put it. False: none of them
 * is it. */
bool store_find(const char *store, const struct model_files *m, const char *hint, char *out,
                size_t size);

/* What has the model's name there and is not this model (damaged, say), when store_find() has found
 * none. False: nothing has. */
bool store_find_other(const char *store, const struct model_files *m, const char *hint,
                      char *out, size_t size);

/* Is there room on the disk for what of the model is not in the store yet? ST_NO_MEMORY with
 * the numbers; ST_IO: there is no such folder and it cannot be made. */
enum status store_check_room(const char *store, const struct model_files *m, struct err *err);

struct store_progress {
    /* Bytes here so far; asked several times a second. False: enough (ST_CANCELLED). What is
     * here stays and is not fetched again. */
    bool (*fn)(void *user, uint64_t bytes);
    void *user;
};
/* Copies the model from the share (node/model_share.h) at `address` into the store. What an earlier
 * try has left is gone on with, as far as it is on the disk as it came (a power cut leaves zeros,
 * and files of digests beside the parts tell); of two at once the second waits for the first.
 * Each file is on the disk, and checked by its digest, before it gets its name; the digest of its
 * whole content is known then (format/content.h). ST_NO_MEMORY: the disk has no room, and nothing
 * is left there of the file that found none; ST_IO; errors of client.h. progress may be NULL. */
enum status store_fetch(const char *store, const struct identity *id, const char *address,
                        const struct model_files *m, const struct store_progress *progress,
                        char *out, size_t size, struct err *err);

/* Copies only the heads of a GGUF, and remembers who has the rest: a rank that opens *out reads
 * its slices from there (struct job's source). Called again it remembers the new address; of
 * two at once the second waits for the first. ST_UNSUPPORTED: no GGUF. */
enum status store_link(const char *store, const struct identity *id, const char *address,
                       const struct model_files *m, const struct store_progress *progress,
                       char *out, size_t size, struct err *err);
/* What store_link() has made: false: nothing of this model. address [address_size] */
bool store_find_link(const char *store, const struct model_files *m, char *out, size_t size,
                     char *address, size_t address_size);

#endif
