/* commands.h: lists of runs, and the commands that were recorded for them.
 *
 * Token after token, the steps of a model ask for the same runs. So a run is noted first, which is
 * a copy of its parameters. When the list ends, commands that were recorded for an equal list are
 * used again; they are recorded only for a new one. Lists and buffers are few: the oldest give way.
 *
 * One thread at a time. After commands_open() nothing is allocated here. */
#ifndef LOCKSTEP_DEVICE_COMMANDS_H
#define LOCKSTEP_DEVICE_COMMANDS_H

#include "device/vulkan_lib.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run. Its push constants follow it, then the next run. Compared by its bytes. */
struct noted_run {
    VkPipeline pipeline;
    uint32_t groups[3];
    uint32_t push_bytes; /* a multiple of 8 */
    uint32_t beside;     /* 1: it waits for nothing that the run before it wrote */
    uint32_t unused;
};

struct commands;

struct commands *commands_open(void); /* NULL: no memory */
void commands_close(struct commands *c);

/* Notes a run with these constants. False: the list is too long to be kept, and stays as it is. */
bool commands_note(struct commands *c, const struct noted_run *run, const void *push);
/* The run after `run` of the list (NULL: the first); NULL: there is none. */
const struct noted_run *commands_next(const struct commands *c, const struct noted_run *run);

/* The list is complete. *buffer: the one for its commands, VK_NULL_HANDLE if it was never
 * allocated. True: it has the commands of an equal list. */
bool commands_find(struct commands *c, VkCommandBuffer **buffer);
/* A new list begins. `recorded`: what commands_find() gave has the commands of the last one now. */
void commands_begin(struct commands *c, bool recorded);

#endif
