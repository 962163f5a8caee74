/* processor_darwin.c: the processor's name from sysctl(3). Not yet run. */
#include "base/processor.h"

#include "base/sentence.h"

#include <sys/sysctl.h>

void processor_name(char *out, size_t size) {
    size_t n = size;
    if (sysctlbyname("machdep.cpu.brand_string", out, &n, NULL, 0) != 0)
        *out = '\0';
    out[size - 1] = '\0';
    sentence_mend(out);
}
