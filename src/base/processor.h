/* processor.h: what this machine's processor is called. */
#ifndef LOCKSTEP_BASE_PROCESSOR_H
#define LOCKSTEP_BASE_PROCESSOR_H

#include <stddef.h>

/* "AMD EPYC 9654 96-Core Processor"; "" where the system does not tell. Valid UTF-8. */
void processor_name(char *out, size_t size);

#endif
