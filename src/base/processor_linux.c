/* processor_linux.c: the processor's name from /proc/cpuinfo, where one of x86 has it. */
#include "base/processor.h"

#include "base/sentence.h"
#include "base/util.h"

#include <stdio.h>

void processor_name(char *out, size_t size) {
    static const char key[] = "model name";
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    *out = '\0';
    while (f != NULL && *out == '\0' && fgets(line, sizeof line, f) != NULL) {
        const char *colon = strchr(line, ':');
        if (!str_starts(line, key) || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        sentence_print(out, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f != NULL)
        fclose(f);
}
