/* pull.h: downloads a model from a hub into the cache (cache.h).
 *
 * A file under way is blobs/HASH.incomplete, which another call continues, after a cut, Ctrl-C or
 * a kill; huggingface_hub continues it, too. It gets its name when its checksum is the one that
 * the hub lists. Two calls for one file wait for each other. */
#ifndef LOCKSTEP_HUB_PULL_H
#define LOCKSTEP_HUB_PULL_H

#include "format/progress.h"
#include "hub/cache.h"
#include "hub/request.h"

/* What the repository has at that revision. settings->go_on is asked. Errors of request.h;
 * ST_BAD_INPUT: what the hub says cannot be. */
enum status hub_list(const struct hub_name *name, const struct hub_settings *settings,
                     const char *revision, struct hub_files *out, struct err *err);

struct hub_pulled {
    char path[PATH_MAX]; /* what to open */
    uint64_t bytes;      /* of the model */
    uint64_t came;       /* of these, over the network now */
};

/* Downloads what is chosen of a list of hub_list(). settings->go_on is not asked: progress is.
 * ST_NO_MEMORY: the disk has no room; what came stays.
 * ST_IO: a checksum is wrong, and the file is removed. */
enum status hub_pull_listed(const struct hub_name *name, const struct hub_settings *settings,
                            const char *revision, struct hub_files *files,
                            const struct progress *progress, struct hub_pulled *out,
                            struct err *err);
/* The same of what hub_list() gives now. */
enum status hub_pull(const struct hub_name *name, const struct hub_settings *settings,
                     const char *revision, const struct progress *progress,
                     struct hub_pulled *out, struct err *err);

#endif
