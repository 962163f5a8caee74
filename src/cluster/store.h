/* store.h: the models of one machine, for its node: finds a model, and copies one from another
 * machine. */
#ifndef LOCKSTEP_CLUSTER_STORE_H
#define LOCKSTEP_CLUSTER_STORE_H

#include "cluster/identity.h"
#include "cluster/model_files.h"

#include <stdbool.h>

/* The default folder of models: lockstep/models in $XDG_DATA_HOME or ~/.local/share.
 * ST_NOT_FOUND: there is no home directory. */
enum status store_path(char *out, size_t size, struct err *err);

/* The same for another of a node's folders, which the option --WHAT names, too. */
enum status store_data_path(char *out, size_t size, const char *what, struct err *err);

/* Looks for exactly this model: at `hint` (its path on the machine that asks; may be NULL), in
 * the store under its name, and at the place where store_fetch() would put it; of a model in the
 * hub's cache there (hub/cache.h), also in the one of this machine. False: not found. */
bool store_find(const char *store, const struct model_files *m, const char *hint, char *out,
                size_t size);

/* What has the model's name there and is not this model (damaged, say), when store_find() has found
 * none. False: nothing has. */
bool store_find_other(const char *store, const struct model_files *m, const char *hint,
                      char *out, size_t size);

/* Whether the disk has space for the part of the model that is not in the store yet.
 * ST_NO_MEMORY with the numbers; ST_IO: the folder is missing and cannot be created. */
enum status store_check_room(const char *store, const struct model_files *m, struct err *err);

struct store_progress {
    /* Bytes here so far; asked several times a second. False: enough (ST_CANCELLED). What is
     * here stays and is not fetched again. */
    bool (*fn)(void *user, uint64_t bytes);
    void *user;
};
/* Copies the model from the share (node/model_share.h) at `address` into the store. It
 * continues an earlier copy as far as that is intact on disk (a power cut leaves zeros, which
 * the digests beside the parts reveal). If two copies run at once, the second waits for the
 * first. Each file is on disk and checked by its digest before it gets its name. The digest of
 * its whole content is then known (base/content.h). ST_NO_MEMORY: the disk is full, and
 * nothing is left of the file that did not fit; ST_IO; errors of client.h. progress may be
 * NULL. */
enum status store_fetch(const char *store, const struct identity *id, const char *address,
                        const struct model_files *m, const struct store_progress *progress,
                        char *out, size_t size, struct err *err);

/* Copies only the heads of a GGUF, and stores which machine has the rest. A rank that opens
 * *out reads its slices from there (struct job's source). Another call stores the new address;
 * if two run at once, the second waits for the first. ST_UNSUPPORTED: not a GGUF. */
enum status store_link(const char *store, const struct identity *id, const char *address,
                       const struct model_files *m, const struct store_progress *progress,
                       char *out, size_t size, struct err *err);
/* What store_link() has made: false: nothing of this model. address [address_size] */
bool store_find_link(const char *store, const struct model_files *m, char *out, size_t size,
                     char *address, size_t address_size);

#endif
